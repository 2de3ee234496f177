package sketch

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// LimitRatio is the memory limit of a container as a multiple of its request, in
// hundredths: 120 is a limit of 1.2 times the request. A resize that keeps limits in
// proportion does not change it.
type LimitRatio uint16

// Values that are no ratio.
const (
	Unseen LimitRatio = 0              // no pod that has the container was seen yet
	Free   LimitRatio = math.MaxUint16 // no limit follows the request: there is none, or resizes leave it as it is
)

const equal LimitRatio = 100

// LimitRatioOf returns the ratio of a limit to a request, both in bytes, 0 = none. A
// container with a limit and no request has a request of the same size.
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

// Tighter returns the smaller of two ratios.
func (h LimitRatio) Tighter(o LimitRatio) LimitRatio {
	if h == Unseen || o != Unseen && o < h {
		return o
	}
	return h
}

// Limited notes the limit ratio that the pods have now, and reports whether it changed.
// While there are no pods, that of the last ones stays: others of the same template will
// come. Where the recipe does not need it nothing is noted.
func (t *Sketch) Limited(h LimitRatio) bool {
	if !t.flags.has(limited) || h == Unseen || h == t.LimitRatio {
		return false
	}
	t.LimitRatio = h
	return true
}

// Undeclared reports whether the container is new, so that its memory request matters, and
// nothing is known of that.
func (t *Sketch) Undeclared() bool { return t.declared == 0 && t.new() && !t.Peaks.Empty() }

// Declare takes the memory request of a container, in bytes, and reports whether it matters.
// The first counts: later ones may be recommendations.
func (t *Sketch) Declare(request resources.Amount) bool {
	if request <= 0 || t.declared != 0 || !t.new() {
		return false
	}
	t.declared = scales[ram].encode(float64(request))
	return true
}

// Declared returns the memory request of a container that is new, and 0
// for others or if it is not known.
func (t *Sketch) Declared() float64 {
	if !t.new() {
		return 0
	}
	return scales[ram].decode(t.declared)
}

func (t *Sketch) new() bool {
	return t.Peaks != nil && (t.Peaks.Empty() || t.Peaks.Age(t.Now) < time.Duration(t.declaredIn)*time.Minute) && t.declaredIn > 0
}
