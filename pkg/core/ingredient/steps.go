package ingredient

import (
	"fmt"
	"math"

	"loadline.dev/loadline/pkg/core/estimate"
)

// Factor multiplies.
func Factor(f float64) estimate.Step {
	return estimate.Step{Name: fmt.Sprintf("x %g", f), Apply: func(_ estimate.Subject, in float64) float64 { return in * f }}
}

// Margin adds a fraction, without rounding.
func Margin(f float64) estimate.Step {
	return estimate.Step{Name: fmt.Sprintf("margin %g", f), Apply: func(_ estimate.Subject, in float64) float64 { return in * (1 + f) }}
}

// Up rounds up to whole amounts after a step.
func Up(s estimate.Step) estimate.Step {
	return estimate.Step{Name: s.Name, Apply: func(subject estimate.Subject, in float64) float64 { return math.Ceil(s.Apply(subject, in)) }}
}

// AtLeast raises to an amount.
func AtLeast(least float64) estimate.Step {
	return estimate.Step{Name: fmt.Sprintf("at least %g", least), Apply: func(_ estimate.Subject, in float64) float64 { return max(in, least) }}
}

// Range keeps the amount within two others.
func Range(least, most float64) estimate.Step {
	return estimate.Step{Name: fmt.Sprintf("from %g to %g", least, most), Apply: func(_ estimate.Subject, in float64) float64 {
		return min(max(in, least), most)
	}}
}
