package recipe

import (
	"fmt"
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// HourOfDay begins a chain: the highest use at this hour of the day in a week.
func HourOfDay(k resources.Kind) Step {
	return Step{Name: k.String() + " peak of this hour of the day", Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Hours[k].SameHour()
	}}
}

// OrLastHour raises to the highest use of the last hour.
func OrLastHour(k resources.Kind) Step {
	return Step{Name: "or of the last hour", Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Hours[k].LastHour())
	}}
}

// Lately begins a chain: a quantile of the use of the last minutes.
func Lately(k resources.Kind, minutes int64, q float64) Step {
	return Step{Name: fmt.Sprintf("%s quantile %g of %d minutes", k, q, minutes), Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Hours[k].Recent(minutes, q)
	}}
}

// UnderPressure raises to what there would have been had CPU work never waited: of is
// the same of that as of the use. Where nobody knows how long it waited, as with the
// metrics API, the amount stays.
func UnderPressure(of func(*sketch.Hours) float64) Step {
	return Step{Name: "or with the time that work waited for CPU", Apply: func(s Subject, in float64) float64 {
		if s.Sketch.Pressed == nil {
			return in
		}
		return max(in, of(s.Sketch.Pressed))
	}}
}

// Heavy begins a chain: a quantile of samples by their weight.
func Heavy(k resources.Kind, q float64) Step {
	return Step{Name: fmt.Sprintf("%s quantile %g by weight", k, q), Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Weighted[k].Quantile(q)
	}}
}

// Utilisation divides by how much of a request is to be used.
func Utilisation(u float64) Step {
	return Step{Name: fmt.Sprintf("/ utilisation %g", u), Apply: func(_ Subject, in float64) float64 { return in / u }}
}

// Truncated turns cores into millicores and drops fractions.
func Truncated(k resources.Kind) Step {
	return Step{Name: "whole " + map[resources.Kind]string{resources.CPU: "millicores", resources.Memory: "bytes"}[k], Apply: func(_ Subject, in float64) float64 {
		if k == resources.CPU {
			in *= 1000
		}
		return math.Floor(in)
	}}
}

// AtKill raises to the memory at which the container was killed within an age.
func AtKill(age time.Duration) Step {
	return Step{Name: fmt.Sprintf("or limit at a kill, else use, for %gh", age.Hours()), Apply: func(s Subject, in float64) float64 {
		return max(in, float64(s.Sketch.Kills.Reached(s.Sketch.Now, age)))
	}}
}

// AfterKill raises to what a container needs that was killed within an age: its
// largest request then and a bump in bytes, or a multiple of it.
func AfterKill(bump, ratio float64, age time.Duration) Step {
	name := fmt.Sprintf("request at a kill + %g or x %g", bump, ratio)
	return Step{Name: name, Apply: func(s Subject, in float64) float64 {
		had, killed := s.Sketch.Kills.Largest(s.Sketch.Now, age)
		if !killed {
			return in
		}
		return max(in, math.Floor(max(float64(had)+bump, float64(had)*ratio)))
	}}
}
