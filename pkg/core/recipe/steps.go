package recipe

import (
	"fmt"
	"math"
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
	return Step{Name: s.Name, Apply: func(subject Subject, in float64) float64 { return math.Ceil(s.Apply(subject, in)) }}
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
