package trail

import (
	"math"

	"loadline.dev/loadline/pkg/core/resources"
)

// Headroom is how large the memory limit of a container is for its request, in
// hundredths: 120 is a limit of 1.2 times the request. It stays while both are changed
// together.
type Headroom uint16

// What is no ratio.
const (
	Unseen Headroom = 0              // no pod that has the container was seen yet
	Free   Headroom = math.MaxUint16 // no limit follows the request: there is none, or it stands still
)

const equal Headroom = 100

// HeadroomOf returns that of a request and a limit in bytes, 0 = none. A limit without
// request is the request, too.
func HeadroomOf(request, limit resources.Amount) Headroom {
	switch {
	case limit <= 0:
		return Free
	case request <= 0:
		return equal
	}
	ratio := math.Round(float64(equal) * float64(limit) / float64(request))
	return Headroom(min(max(ratio, float64(equal)), float64(Free-1)))
}

// Ratio returns the limit as a multiple of the request, and false if there is none.
func (h Headroom) Ratio() (float64, bool) {
	return float64(h) / float64(equal), h != Unseen && h != Free
}

// Tighter returns that which leaves less room.
func (h Headroom) Tighter(o Headroom) Headroom {
	if h == Unseen || o != Unseen && o < h {
		return o
	}
	return h
}

// Limited takes the headroom that the pods have now, and tells whether it was another
// before. While there are no pods, what the last ones had stays: they come back. A
// recipe that does not want to know is not told.
func (t *Trail) Limited(h Headroom) bool {
	if !t.limited || h == Unseen || h == t.Headroom {
		return false
	}
	t.Headroom = h
	return true
}
