package recipe

import (
	"fmt"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// overDay is what the memory request that follows use has above the highest use of the last
// day, as a fraction.
const overDay = 0.10

// wholeDay is how long a container must have been seen before its request follows: before, the
// highest use of a day is not known.
const wholeDay = 24 * time.Hour

// follow makes the memory request of a recipe follow use, and what was its target what the
// limit protects.
func (l *loadline) follow(r *Recipe) {
	protects := r.Target[resources.Memory]
	r.SeparateMemoryLimit = true
	r.Upper[resources.Memory] = protects
	r.Target[resources.Memory] = append(slices.Clone(protects), Following(overDay, max(wholeDay, hours(l.declaredHours))), Floor(resources.Memory))
}

// Following lowers what a limit protects to the highest use of the last day and a margin, for
// the request. Where the request must stay with the limit, because they are equal or because
// the limit was not seen yet, and for the first time, it stays.
func Following(margin float64, first time.Duration) Step {
	usual := fmt.Sprintf("highest of the last day + %g, if that is less", margin)
	says := func(s Subject) string {
		if why := stays(s, first); why != "" {
			return "the same for the request, as " + why
		}
		return usual
	}
	return Step{Name: usual, Says: says, Apply: func(s Subject, in float64) float64 {
		if stays(s, first) != "" {
			return in
		}
		return min(in, s.Sketch.Peaks.Day()*(1+margin))
	}}
}

// stays says why the memory request does not follow use; empty: it does.
func stays(s Subject, first time.Duration) string {
	ratio, some := s.Sketch.LimitRatio.Ratio()
	switch {
	case some && ratio <= 1:
		return "limit and request are equal"
	case s.Sketch.LimitRatio == sketch.Unseen:
		return "the limit is not known yet"
	case s.Sketch.Peaks.Age(s.Sketch.Now) < first:
		return fmt.Sprintf("less than %g hours were seen", first.Hours())
	}
	return ""
}
