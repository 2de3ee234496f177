package sketch

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Waited takes the share of the time, 0 to 1, in which CPU work waited while a use
// was measured, right after that use was observed: Pressed has it as the use that
// there would have been. A recipe that does not want to know is not told.
func (t *Sketch) Waited(at time.Time, use resources.Amount, share float64) {
	if !t.waits || t.Hours[resources.CPU] == nil {
		return
	}
	if t.Pressed == nil {
		t.Pressed = unpressed(t)
	}
	t.Pressed.Observe(at.UnixNano(), float64(use)*(1+share))
}

// unpressed returns what Pressed is where nobody knows how long work waited: the use
// as it was.
func unpressed(t *Sketch) *Hours {
	same := *t.Hours[resources.CPU]
	return &same
}

// mergePressed adds what another sketch knows, which may be nothing of pressure.
func (t *Sketch) mergePressed(o *Sketch) {
	if !t.waits || t.Pressed == nil && o.Pressed == nil || t.Hours[resources.CPU] == nil || o.Hours[resources.CPU] == nil {
		return
	}
	if t.Pressed == nil {
		t.Pressed = unpressed(t) // Hours of both may be merged by now: that is less than pressed ones
	}
	if o.Pressed == nil {
		t.Pressed.Merge(o.Hours[resources.CPU])
		return
	}
	t.Pressed.Merge(o.Pressed)
}
