package sketch

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Undeclared tells whether the container is new, so that its memory request matters, and
// nothing is known of that.
func (t *Sketch) Undeclared() bool { return t.first == 0 && t.new() && !t.Peaks.Empty() }

// Declare takes the memory request of a container, in bytes, and tells whether it matters.
// The first counts: later ones may be recommendations.
func (t *Sketch) Declare(request resources.Amount) bool {
	if request <= 0 || t.first != 0 || !t.new() {
		return false
	}
	t.first = encode(float64(request))
	return true
}

// Declared returns the memory request of a container that is new, to a thousandth, and 0
// for others or if it is not known.
func (t *Sketch) Declared() float64 {
	if !t.new() {
		return 0
	}
	return decode(t.first)
}

func (t *Sketch) new() bool {
	return t.Peaks != nil && (t.Peaks.Empty() || t.Peaks.Age(t.Now) < time.Duration(t.early)*time.Minute) && t.early > 0
}
