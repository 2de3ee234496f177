package status

import (
	"time"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
)

// Estimate is what the history of a container comes to, before any quantity is
// printed: all that its recommendation is made of, apart from the object of the
// VPA and the settings. Two that are equal lead to the same recommendation.
type Estimate struct {
	Container string
	Bounds    resources.Bounds               // of both kinds
	Known     [resources.Kinds]bool          // there is history of the kind
	Untrusted [resources.Kinds]bool          // there may have been more than is known
	Coarse    bool                           // bounds are rounded when they are printed: a small difference may become a large one
	History   time.Duration                  // that the samples cover at least, see Covered
	Points    [resources.Kinds]recipe.Points // zero if there are enough, see Lacking
}

// Lacking returns zero if there are enough points. Else those that there are, rounded down
// to half an hour, because each step means a write of the status.
func Lacking(p recipe.Points) recipe.Points {
	const step = 6
	if p.Have >= p.Want {
		return recipe.Points{}
	}
	p.Have -= p.Have % step
	return p
}

// Covered returns the longest of Steps that is within a span: estimates do not
// differ while that is the same.
func Covered(span time.Duration) time.Duration { return Steps[stepOf(span)].From }

func stepOf(span time.Duration) int {
	step := 0
	for step+1 < len(Steps) && span >= Steps[step+1].From {
		step++
	}
	return step
}

// tolerance is by which fractions bounds may differ from those that are published.
type tolerance struct {
	wider    float64 // further from the target
	narrower float64 // nearer to it
}

// near tells whether two estimates lead to recommendations that differ at most in
// bounds, and there by no more than the tolerance.
func (e Estimate) near(o Estimate, t tolerance) bool {
	if e.Coarse {
		t = tolerance{}
	}
	if !t.covers(e.Bounds, o.Bounds) {
		return false
	}
	o.Bounds.Lower, o.Bounds.Upper = e.Bounds.Lower, e.Bounds.Upper
	return e == o
}

// covers tells whether two pairs of bounds have the same kinds and differ by no
// more than the tolerance, a fraction of the first.
func (t tolerance) covers(was, is resources.Bounds) bool {
	return near(was.Lower, is.Lower, t.narrower, t.wider) && near(was.Upper, is.Upper, t.wider, t.narrower)
}

// near tells whether two bounds have the same kinds and differ by no more than a
// fraction of the first, one for a rise and one for a fall.
func near(was, is resources.List, rise, fall float64) bool {
	for k := range resources.Kind(resources.Kinds) {
		a, found := was.Get(k)
		b, stays := is.Get(k)
		if found != stays || float64(b-a) > rise*float64(a) || float64(a-b) > fall*float64(a) {
			return false
		}
	}
	return true
}
