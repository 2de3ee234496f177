package sketch

import (
	"math"

	"loadline.dev/loadline/pkg/core/resources"
)

// LimitRatio is how large the memory limit of a container is for its request, in
// hundredths: 120 is a limit of 1.2 times the request. It stays while both are changed
// together.
type LimitRatio uint16

// What is no ratio.
const (
	Unseen LimitRatio = 0              // no pod that has the container was seen yet
	Free   LimitRatio = math.MaxUint16 // no limit follows the request: there is none, or it stands still
)

const equal LimitRatio = 100

// LimitRatioOf returns that of a request and a limit in bytes, 0 = none. A limit without
// request is the request, too.
func LimitRatioOf(request, limit resources.Amount) LimitRatio {
	switch {
	case limit <= 0:
		return Free
	case request <= 0:
		return equal
	}
	ratio := math.Round(float64(equal) * float64(limit) / float64(request))
	return LimitRatio(min(max(ratio, float64(equal)), float64(Free-1)))
}

// Ratio returns the limit as a multiple of the request, and false if there is none.
func (h LimitRatio) Ratio() (float64, bool) {
	return float64(h) / float64(equal), h != Unseen && h != Free
}

// Tighter returns that which leaves less room.
func (h LimitRatio) Tighter(o LimitRatio) LimitRatio {
	if h == Unseen || o != Unseen && o < h {
		return o
	}
	return h
}

// Limited takes the limit ratio that the pods have now, and tells whether it was another
// before. While there are no pods, what the last ones had stays: they come back. A
// recipe that does not want to know is not told.
func (t *Sketch) Limited(h LimitRatio) bool {
	if !t.limited || h == Unseen || h == t.LimitRatio {
		return false
	}
	t.LimitRatio = h
	return true
}
