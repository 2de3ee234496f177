package recipe

import (
	"fmt"
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// Level begins a chain: a share of a slow (0) or a fast (1) memory.
func Level(shape *sketch.LoadShape, i int) Step {
	return Step{Name: shape.Name(i), Apply: func(s Subject, _ float64) float64 { return s.Sketch.Load[shape.Kind()].Level(i) }}
}

// OrLevel takes it where it is larger.
func OrLevel(shape *sketch.LoadShape, i int) Step {
	return Step{Name: "or " + shape.Name(i), Apply: func(s Subject, in float64) float64 { return max(in, s.Sketch.Load[shape.Kind()].Level(i)) }}
}

// LastHour raises to the highest level of the last hour.
func LastHour(k resources.Kind) Step {
	return Step{Name: "highest of the last hour", Apply: func(s Subject, in float64) float64 { return max(in, s.Sketch.Load[k].Hour()) }}
}

// TwoPeaks begins a chain for memory: the second-highest daily peak of two weeks,
// or the peak of the last hours.
func TwoPeaks() Step {
	return Step{Name: "second-highest daily peak of 14 days, or the running one", Apply: func(s Subject, _ float64) float64 {
		return max(sketch.Base(s.Sketch.Peaks.Daily()), s.Sketch.Peaks.Running())
	}}
}

// mostMargin is the most that VolatileMargin adds, as a fraction.
const mostMargin = 3

// VolatileMargin adds a fixed fraction, more where daily peaks differ, and more
// for a container that is new, above all a restless one.
func VolatileMargin(fixed Fixed, volatility, cold, restless float64, halfLife time.Duration) Step {
	says := func(s Subject) string {
		return fmt.Sprintf("margin %s + %g x volatility + (%g + %g x restlessness) halved every %gh", fixed.says(s), volatility, cold, restless, halfLife.Hours())
	}
	return Step{Name: "margin", Says: says, Apply: func(s Subject, in float64) float64 {
		p, least := s.Sketch.Peaks, fixed.of(s)
		young := min(mostMargin, cold+restless*p.Restless()) * math.Exp2(-float64(p.Age(s.Sketch.Now))/float64(halfLife))
		margin := least + volatility*p.Volatility(p.Daily()) + young
		return in * (1 + min(max(margin, min(least, 0)), mostMargin))
	}}
}

// AtFirst raises to the declared request while the container is new.
func AtFirst(hours float64) Step {
	return Step{Name: fmt.Sprintf("or declared request in the first %gh", hours), Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Declared())
	}}
}

// LastDay raises to the highest use of the last day and a fixed margin, which is no
// less than least.
func LastDay(fixed Fixed, least float64) Step {
	margin := func(s Subject) float64 { return max(fixed.of(s), least) }
	says := func(s Subject) string { return fmt.Sprintf("or highest of the last day + %.3g", margin(s)) }
	return Step{Name: "or highest of the last day", Says: says, Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Peaks.Day()*(1+margin(s)))
	}}
}
