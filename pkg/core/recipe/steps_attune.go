package recipe

import (
	"fmt"
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// Habits finds what a container is known to do. Amounts are millicores or bytes.
type Habits func(Subject) *sketch.Habits

// Worst begins a chain: a percentile of the week or of its worst hour. Without any
// use it is the current request.
func Worst(k resources.Kind, percentile float64, habits Habits) Step {
	return Step{Name: fmt.Sprintf("%s percentile %g of the week or an hour", k, percentile), Apply: func(s Subject, _ float64) float64 {
		if highest := habits(s).Highest(int(percentile)); highest > 0 {
			return highest
		}
		return float64(s.Current.Value(k))
	}}
}

// Burst adds to the amount where the maximum is far above the rest.
func Burst(sensitivity float64, habits Habits) Step {
	return Step{Name: fmt.Sprintf("burst, sensitivity %g", sensitivity), Apply: func(s Subject, in float64) float64 {
		return in * BurstFactor(habits(s).Burst, sensitivity)
	}}
}

// Unsure adds to the amount where little is known.
func Unsure(published bool, habits Habits) Step {
	return Step{Name: "confidence", Apply: func(s Subject, in float64) float64 {
		return in * ConfidenceFactor(habits(s).Confidence, published)
	}}
}

// FromCPU begins a chain for memory: so many GiB for each core that another chain
// gives.
func FromCPU(ratio float64, cpu Chain) Step {
	return Step{Name: fmt.Sprintf("%g GiB a core", ratio), Apply: func(s Subject, _ float64) float64 {
		return float64(cpu.Run(s, nil)) / 1000 * ratio * (1 << 30)
	}}
}

// Percent adds a percentage.
func Percent(p float64) Step {
	return Step{Name: fmt.Sprintf("+ %g %%", p), Apply: func(_ Subject, in float64) float64 { return in * (1 + p/100) }}
}

// BurstFactor returns what a burst of a magnitude adds, 1 for none.
func BurstFactor(magnitude, sensitivity float64) float64 {
	if magnitude <= 1 || sensitivity <= 0 {
		return 1
	}
	return 1 + sensitivity*math.Log2(magnitude)
}

// leastConfidence is what the published formula takes a lower one for.
const leastConfidence = 0.1

// ConfidenceFactor returns what a lack of confidence adds: at full confidence
// nothing as it is shipped, but the fourfold as it is published.
func ConfidenceFactor(confidence float64, published bool) float64 {
	if published {
		return math.Pow(1+1/max(confidence, leastConfidence), 2)
	}
	return 1 + math.Pow(1-min(max(confidence, 0), 1), 2)
}

// MinChange is the change below which a request stays, in percent. It is fixed.
const MinChange = 10

// ChangeFilter keeps the current request where the change is too little, and
// bounds the change otherwise. Without a current request nothing is filtered.
func ChangeFilter(k resources.Kind, increase, decrease float64) Step {
	name := fmt.Sprintf("change from %d %% on, at most + %g %% or - %g %%", MinChange, increase, decrease)
	return Step{Name: name, Apply: func(s Subject, in float64) float64 {
		result, _ := Filter(float64(s.Current.Value(k)), in, increase, decrease)
		return result
	}}
}

// What Filter did.
const (
	Kept   = "min_change_filtered"
	Capped = "max_change_capped"
)

// Filter is ChangeFilter for two amounts. It tells what it did, nothing if the
// change passed.
func Filter(current, wanted, increase, decrease float64) (result float64, did string) {
	if current <= 0 {
		return wanted, ""
	}
	percent := math.Abs(wanted-current) * 100 / current
	switch {
	case percent < MinChange:
		return current, Kept
	case wanted > current && percent > increase:
		return current + current*increase/100, Capped
	case wanted < current && percent > decrease:
		return current - current*decrease/100, Capped
	}
	return wanted, ""
}

// OncePer keeps the target that was recommended last until an interval has passed since
// it changed: what is in force follows it long before.
func OncePer(k resources.Kind, interval time.Duration) Step {
	return Step{Name: fmt.Sprintf("at most one change in %gh", interval.Hours()), Apply: func(s Subject, in float64) float64 {
		if s.Sketch == nil {
			return in
		}
		if target, since, known := s.Sketch.Target(k); known && since < interval {
			return float64(target)
		}
		return in
	}}
}

// NoDecrease keeps the current request where it is larger.
func NoDecrease(k resources.Kind) Step {
	return Step{Name: "no decrease", Apply: func(s Subject, in float64) float64 { return max(in, float64(s.Current.Value(k))) }}
}
