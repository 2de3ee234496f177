package sketch

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Recommended takes the target of a kind that is recommended now. A recipe without points
// is not told.
func (t *Sketch) Recommended(k resources.Kind, target resources.Amount) {
	if p := t.Points[k]; p != nil {
		p.Recommended(t.Now, target)
	}
}

// Target returns the target of a kind that was recommended last, and for how long it has
// been this; false if there is none, or the recipe is not told.
func (t *Sketch) Target(k resources.Kind) (target resources.Amount, since time.Duration, known bool) {
	p := t.Points[k]
	if p == nil {
		return 0, 0, false
	}
	target, at := p.Target()
	return target, time.Duration(max(t.Now-at, 0)), at != 0
}
