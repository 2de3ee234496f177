package recipe

import (
	"fmt"

	"loadline.dev/loadline/pkg/core/resources"
)

// Highest begins a chain for memory: the highest peak of some days.
func Highest(days int64) Step {
	return Step{Name: fmt.Sprintf("highest peak of %d days", days), Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Peaks.Highest(days)
	}}
}

// OrHighest raises to a share of it.
func OrHighest(share float64, days int64) Step {
	return Step{Name: fmt.Sprintf("or %g of the highest peak of %d days", share, days), Apply: func(s Subject, in float64) float64 {
		return max(in, share*s.Sketch.Peaks.Highest(days))
	}}
}

// RunningPeak raises to the highest use of the last hours: what is in use cannot be
// taken away, and in the first minutes no model has a limit.
func RunningPeak() Step {
	return Step{Name: "or highest of the last hours", Apply: func(s Subject, in float64) float64 { return max(in, s.Sketch.Peaks.Running()) }}
}

// Cheapest begins a chain: the limit of the model that would have cost least.
func Cheapest(k resources.Kind) Step {
	return Step{Name: k.String() + " limit of the model that cost least", Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Models[k].Limit()
	}}
}
