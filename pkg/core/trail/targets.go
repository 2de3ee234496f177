package trail

import (
	"time"

	"loadline.dev/loadline/pkg/core/amount"
)

// Recommended takes the target of a kind that is recommended now. A recipe without points
// is not told.
func (t *Trail) Recommended(k amount.Kind, target amount.Amount) {
	if p := t.Points[k]; p != nil {
		p.Recommended(t.Now, target)
	}
}

// Target returns the target of a kind that was recommended last, and for how long it has
// been this; false if there is none, or the recipe is not told.
func (t *Trail) Target(k amount.Kind) (target amount.Amount, since time.Duration, known bool) {
	p := t.Points[k]
	if p == nil {
		return 0, 0, false
	}
	target, at := p.Target()
	return target, time.Duration(max(t.Now-at, 0)), at != 0
}
