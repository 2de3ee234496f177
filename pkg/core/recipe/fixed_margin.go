package recipe

import (
	"fmt"
	"math"

	"loadline.dev/loadline/pkg/core/sketch"
)

// Fixed is the part of a margin of memory that does not depend on use: a fraction, or
// what ByLimit returns.
type Fixed float64

// ByLimit is the fixed part that the limit of the container asks for.
func ByLimit() Fixed { return Fixed(math.NaN()) }

// FollowsLimit reports whether it is what ByLimit returns.
func (f Fixed) FollowsLimit() bool { return math.IsNaN(float64(f)) }

// The usual fixed part is enough where the limit is roomy, where none follows the request,
// and where nobody has seen it. It grows straight to that where both are equal. Why these
// numbers: lab/docs/recipe-design.md.
const (
	usual = 0.10
	tight = 0.20 // where limit and request are equal
	roomy = 1.2  // least limit for the usual one, as a multiple of the request
)

// asks returns the fixed part for the ratio of a limit to its request.
func asks(h sketch.LimitRatio) float64 {
	ratio, some := h.Ratio()
	if !some || ratio >= roomy {
		return usual
	}
	return tight - (tight-usual)*max(ratio-1, 0)/(roomy-1)
}

// of returns the fraction for a subject.
func (f Fixed) of(s Subject) float64 {
	if f.FollowsLimit() {
		return asks(s.Sketch.LimitRatio)
	}
	return float64(f)
}

// says writes it for people.
func (f Fixed) says(s Subject) string {
	if !f.FollowsLimit() {
		return fmt.Sprintf("%g", float64(f))
	}
	why := "the limit is not known yet"
	if ratio, some := s.Sketch.LimitRatio.Ratio(); some {
		why = fmt.Sprintf("limit %g x request", ratio)
	} else if s.Sketch.LimitRatio == sketch.Free {
		why = "no limit follows the request"
	}
	return fmt.Sprintf("%.3g (%s)", f.of(s), why)
}
