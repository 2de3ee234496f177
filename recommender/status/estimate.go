package status

import (
	"time"

	"loadline.dev/loadline/pkg/core/amount"
)

// Estimate is what the history of a container comes to, before any quantity is
// printed: all that its recommendation is made of, apart from the object of the
// VPA and the settings. Two that are equal lead to the same recommendation.
type Estimate struct {
	Container string
	Bounds    amount.Bounds      // of both kinds
	Known     [amount.Kinds]bool // there is history of the kind
	Doubted   [amount.Kinds]bool // there may have been more than is known
	Coarse    bool               // bounds are rounded when they are printed: a small difference may become a large one
	History   time.Duration      // that the samples cover at least, see Covered
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

// near tells whether two estimates lead to recommendations that differ at most in
// bounds, and there by no more than the tolerance.
func (e Estimate) near(o Estimate, tolerance float64) bool {
	if e.Coarse {
		tolerance = 0
	}
	was, is := e.Bounds, o.Bounds
	o.Bounds.Lower, o.Bounds.Upper = was.Lower, was.Upper
	return e == o && near(was.Lower, is.Lower, tolerance) && near(was.Upper, is.Upper, tolerance)
}

// near tells whether two bounds have the same kinds and differ by no more than
// the tolerance, a fraction of the first.
func near(was, is amount.Resources, tolerance float64) bool {
	for k := range amount.Kind(amount.Kinds) {
		a, found := was.Get(k)
		b, stays := is.Get(k)
		if found != stays || float64(max(a, b)-min(a, b)) > tolerance*float64(a) {
			return false
		}
	}
	return true
}
