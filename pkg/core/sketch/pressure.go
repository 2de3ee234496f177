package sketch

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Waited notes for which share of the time, 0 to 1, CPU work waited while a usage was
// measured. It is called after that usage was observed. Pressed holds the usage that there
// would have been without waiting: use x (1 + share). Where the recipe does not need it
// nothing is noted.
func (t *Sketch) Waited(at time.Time, use resources.Amount, share float64) {
	if !t.waits || t.Hours[resources.CPU] == nil {
		return
	}
	if t.Pressed == nil {
		t.Pressed = unpressed(t)
	}
	t.Pressed.Observe(at.UnixNano(), float64(use)*(1+share))
}

// unpressed returns Pressed as it is while nothing is known of waiting: the usage as it
// was measured.
func unpressed(t *Sketch) *Hours {
	same := *t.Hours[resources.CPU]
	return &same
}

// mergePressed merges the Pressed of another sketch, or its plain usage if it has none.
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
