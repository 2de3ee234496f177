package recipe

import (
	"fmt"
	"math"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// Factor multiplies.
func Factor(f float64) Step {
	return Step{Name: fmt.Sprintf("x %g", f), Apply: func(_ Subject, in float64) float64 { return in * f }}
}

// Enlarged adds a fraction, without rounding.
func Enlarged(f float64) Step {
	return Step{Name: fmt.Sprintf("margin %g", f), Apply: func(_ Subject, in float64) float64 { return in * (1 + f) }}
}

// Up rounds up to whole amounts after a step.
func Up(s Step) Step {
	return Step{Name: s.Name, Says: s.Says, Apply: func(subject Subject, in float64) float64 { return math.Ceil(s.Apply(subject, in)) }}
}

// AtLeast raises to an amount.
func AtLeast(least float64) Step {
	return Step{Name: fmt.Sprintf("at least %g", least), Apply: func(_ Subject, in float64) float64 { return max(in, least) }}
}

// Range keeps the amount within two others.
func Range(least, most float64) Step {
	return Step{Name: fmt.Sprintf("from %g to %g", least, most), Apply: func(_ Subject, in float64) float64 {
		return min(max(in, least), most)
	}}
}

// Level begins a chain: a share of a slow (0) or a fast (1) memory.
func Level(shape *sketch.LoadShape, i int) Step {
	return Step{Name: shape.Name(i), Apply: func(s Subject, _ float64) float64 { return s.Sketch.Load[shape.Kind()].Level(i, s.Sketch.Now) }}
}

// OrLevel takes it where it is larger.
func OrLevel(shape *sketch.LoadShape, i int) Step {
	return Step{Name: "or " + shape.Name(i), Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Load[shape.Kind()].Level(i, s.Sketch.Now))
	}}
}

// LastHour raises to the highest level of the last hour.
func LastHour(k resources.Kind) Step {
	return Step{Name: "highest of the last hour", Apply: func(s Subject, in float64) float64 { return max(in, s.Sketch.Load[k].Hour()) }}
}

// The bounds of recipes that have none of their own: a request below lower x
// target or above upper x target is changed at once.
var (
	lower = [resources.Kinds]float64{0.85, 0.95}
	upper = [resources.Kinds]float64{1.5, 1.3}
)

// around gives a recipe bounds that follow its target.
func around(r *Recipe, lower, upper [resources.Kinds]float64) {
	for k := range resources.Kind(resources.Kinds) {
		r.Lower[k] = Chain{FromTarget(k), Factor(lower[k]), Floor(k)}
		r.Upper[k] = Chain{FromTarget(k), Factor(upper[k])}
	}
}

// FromTarget begins a chain for a bound: the target.
func FromTarget(k resources.Kind) Step {
	return Step{Name: "target", Apply: func(s Subject, _ float64) float64 { return float64(s.Target.Value(k)) }}
}
