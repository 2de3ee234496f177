package ingredient

import (
	"fmt"
	"math"

	"loadline.dev/loadline/pkg/core/estimate"
	"loadline.dev/loadline/pkg/core/trail"
)

// Fixed is the part of a margin of memory that does not depend on use: a fraction, or
// what ByLimit returns.
type Fixed float64

// ByLimit is the fixed part that the limit of the container asks for.
func ByLimit() Fixed { return Fixed(math.NaN()) }

// FollowsLimit tells whether it is what ByLimit returns.
func (f Fixed) FollowsLimit() bool { return math.IsNaN(float64(f)) }

// asked are fixed parts by the limit as a multiple of the request; between two of them
// straight. They were chosen on one half of the recordings; see docs/decisions/0060.
var asked = [...]struct{ ratio, margin float64 }{{1, 0.20}, {1.2, 0.10}, {2, 0}}

// usual is the fixed part where no limit follows the request, or nobody has seen it.
const usual = 0.10

// asks returns the fixed part for a headroom.
func asks(h trail.Headroom) float64 {
	ratio, some := h.Ratio()
	if !some {
		return usual
	}
	for i := 1; i < len(asked); i++ {
		if a, b := asked[i-1], asked[i]; ratio < b.ratio {
			return a.margin + (b.margin-a.margin)*max(ratio-a.ratio, 0)/(b.ratio-a.ratio)
		}
	}
	return asked[len(asked)-1].margin
}

// of returns the fraction for a subject.
func (f Fixed) of(s estimate.Subject) float64 {
	if f.FollowsLimit() {
		return asks(s.Trail.Headroom)
	}
	return float64(f)
}

// says writes it for people.
func (f Fixed) says(s estimate.Subject) string {
	if !f.FollowsLimit() {
		return fmt.Sprintf("%g", float64(f))
	}
	why := "the limit is not known yet"
	if ratio, some := s.Trail.Headroom.Ratio(); some {
		why = fmt.Sprintf("limit %g x request", ratio)
	} else if s.Trail.Headroom == trail.Free {
		why = "no limit follows the request"
	}
	return fmt.Sprintf("%.3g (%s)", f.of(s), why)
}
