package recipe

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// Attune holds the settings of the attune recipe for one resource.
type Attune struct {
	Percentile  float64           // 50, 90, 95 or 99
	Overhead    float64           // percent
	Sensitivity float64           // to bursts, 0 or below = ignore bursts
	Confidence  ConfidenceFormula // margin for lack of confidence
	Min, Max    float64           // millicores or bytes
	MinChange   float64           // percent, smaller changes are ignored
	MaxChange   float64           // maximum change at a time, percent
	MaxIncrease float64           // maximum increase, 0 = MaxChange
	MaxDecrease float64           // maximum decrease, 0 = MaxChange
	MayDecrease bool
	FromCPU     float64 // memory: GiB per CPU core instead of usage, 0 = off
}

// In percent.
const defaultMaxChange = 50

// ChangeLimits returns the maximum increase and decrease in percent.
func (a Attune) ChangeLimits() (increase, decrease float64) {
	both := cmp.Or(a.MaxChange, defaultMaxChange)
	return cmp.Or(a.MaxIncrease, both), cmp.Or(a.MaxDecrease, both)
}

// A recommendation requires minPoints of five minutes. A changed target is kept for cooldown.
const (
	minPoints = 48
	cooldown  = time.Hour
)

// attune is a recipe based on a percentile of the week or of its worst hour, plus margins.
type attune struct {
	kinds      [resources.Kinds]Attune
	confidence ConfidenceFormula // for both resources
	minChange  float64           // for both resources
	mean       bool              // of the pods of a workload, else the highest pod
}

func newAttune(published bool) *attune {
	return &attune{confidence: ConfidenceFormula{Published: published, Multiplier: 1, Exponent: 2}, minChange: 10, kinds: [resources.Kinds]Attune{
		{Percentile: 95, Overhead: 20, Sensitivity: 0.1, Min: 1, Max: 4000, MaxChange: 50, MayDecrease: true},
		{Percentile: 99, Overhead: 30, Sensitivity: 0.1, Min: 4 << 20, Max: 8 << 30, MaxChange: 30},
	}}
}

func (a *attune) choices() []choice {
	list := []choice{
		{name: "pods", options: []string{"max", "mean"}, apply: func(option string) { a.mean = option == "mean" }},
	}
	for k := range resources.Kind(resources.Kinds) {
		list = append(list, choice{name: k.String() + "-percentile", options: []string{"50", "90", "95", "99"}, apply: func(option string) {
			a.kinds[k].Percentile, _ = strconv.ParseFloat(option, 64) // cannot fail for these options
		}}, choice{name: k.String() + "-decrease", options: []string{"no", "yes"}, apply: func(option string) { a.kinds[k].MayDecrease = option == "yes" }})
	}
	return list
}

func (a *attune) settings() []setting {
	list := []setting{
		{"memory-from-cpu-ratio", &a.kinds[resources.Memory].FromCPU, 0, 1000},
		{"confidence-multiplier", &a.confidence.Multiplier, 0, 100}, {"confidence-exponent", &a.confidence.Exponent, 0, 10},
		{"min-change", &a.minChange, 0, 100},
	}
	for k := range resources.Kind(resources.Kinds) {
		c, name := &a.kinds[k], k.String()
		list = append(list,
			setting{name + "-overhead", &c.Overhead, 0, 900},
			setting{name + "-burst-sensitivity", &c.Sensitivity, 0, 1}, setting{name + "-min", &c.Min, 1, 1e14},
			setting{name + "-max", &c.Max, 1, 1e14}, setting{name + "-max-change", &c.MaxChange, 1, 100},
			setting{name + "-max-increase", &c.MaxIncrease, 0, 100}, setting{name + "-max-decrease", &c.MaxDecrease, 0, 100})
	}
	return list
}

func (a *attune) build() Recipe {
	r := Recipe{Needs: sketch.Needs{Points: true, Mean: a.mean}, UsesCurrent: true, MinPoints: minPoints}
	for k := range resources.Kind(resources.Kinds) {
		one := a.kinds[k]
		one.Confidence, one.MinChange = a.confidence, a.minChange
		habits := func(s Subject) *sketch.UsageProfile { return s.Sketch.Points[k].Profile() }
		r.Target[k], r.PointsKind[k], r.burst[k] = one.Chain(k, habits), k, one.Sensitivity
		if one.FromCPU > 0 {
			r.Target[k] = one.MemoryChain(r.Target[resources.CPU])
			r.PointsKind[k], r.burst[k] = resources.CPU, 0
		}
	}
	for k := range resources.Kind(resources.Kinds) {
		r.Target[k] = append(r.Target[k], Floor(k))
	}
	setDefaultBounds(&r, defaultLower, defaultUpper)
	return r
}

// Chain returns the steps from a usage profile to a request. Each step rounds up.
func (a Attune) Chain(k resources.Kind, habits ProfileFunc) Chain {
	return append(Chain{
		RoundUp(WorstPercentile(k, a.Percentile, habits)),
		RoundUp(AddPercent(a.Overhead)),
		RoundUp(Burst(a.Sensitivity, habits)),
		RoundUp(ConfidenceMargin(a.Confidence, habits)),
	}, a.finalSteps(k)...)
}

// MemoryChain returns the steps from a CPU request to a memory request.
func (a Attune) MemoryChain(cpu Chain) Chain {
	return append(Chain{
		RoundUp(FromCPU(a.FromCPU, cpu)),
		RoundUp(AddPercent(a.Overhead)),
	}, a.finalSteps(resources.Memory)...)
}

// finalSteps bound the request and its changes. The change filter follows the range, so a request
// outside the range moves into it in several steps, an hour apart.
func (a Attune) finalSteps(k resources.Kind) Chain {
	increase, decrease := a.ChangeLimits()
	chain := Chain{Range(a.Min, a.Max), RoundUp(ChangeFilter(k, a.MinChange, increase, decrease)), OncePer(k, cooldown)}
	if !a.MayDecrease {
		chain = append(chain, NoDecrease(k, a.Max))
	}
	return chain
}

// ProfileFunc returns the usage profile of a container in millicores or bytes.
type ProfileFunc func(Subject) *sketch.UsageProfile

// WorstPercentile begins a chain with a percentile of the week or of its worst hour. Without usage
// it returns the current request.
func WorstPercentile(k resources.Kind, percentile float64, habits ProfileFunc) Step {
	return Step{Name: fmt.Sprintf("%s percentile %g of the week or an hour", k, percentile), Apply: func(s Subject, _ float64) float64 {
		if highest := habits(s).Highest(int(percentile)); highest > 0 {
			return highest
		}
		return float64(s.Current.Value(k))
	}}
}

// Burst increases the amount where the maximum is far above the other samples.
func Burst(sensitivity float64, habits ProfileFunc) Step {
	name := fmt.Sprintf("burst, sensitivity %g", sensitivity)
	return Step{Name: name, Apply: func(s Subject, in float64) float64 {
		return in * BurstFactor(habits(s).Burst, sensitivity)
	}, Describe: func(s Subject) string {
		magnitude := habits(s).Burst
		if magnitude == 0 {
			return name + ": x 1, no burst"
		}
		return fmt.Sprintf("%s: x %.4g, magnitude %.4g", name, BurstFactor(magnitude, sensitivity), magnitude)
	}}
}

// ConfidenceMargin increases the amount where there is little usage history.
func ConfidenceMargin(d ConfidenceFormula, habits ProfileFunc) Step {
	return Step{Name: "confidence", Apply: func(s Subject, in float64) float64 {
		return in * d.Factor(habits(s).Confidence)
	}, Describe: func(s Subject) string {
		h := habits(s)
		return fmt.Sprintf("confidence %.4g of %d points: x %.4g", h.Confidence, h.Points, d.Factor(h.Confidence))
	}}
}

// FromCPU begins a memory chain with ratio GiB for each core that the CPU chain returns.
func FromCPU(ratio float64, cpu Chain) Step {
	return Step{Name: fmt.Sprintf("%g GiB a core", ratio), Apply: func(s Subject, _ float64) float64 {
		return float64(cpu.Run(s, nil)) / 1000 * ratio * (1 << 30)
	}}
}

// AddPercent adds a percentage.
func AddPercent(p float64) Step {
	return Step{Name: fmt.Sprintf("+ %g %%", p), Apply: func(_ Subject, in float64) float64 { return in * (1 + p/100) }}
}

// BurstFactor returns the factor for a burst of a magnitude, 1 = no burst.
func BurstFactor(magnitude, sensitivity float64) float64 {
	if magnitude <= 1 || sensitivity <= 0 {
		return 1
	}
	return 1 + sensitivity*math.Log2(magnitude)
}

const minConfidence = 0.1

// ConfidenceFormula computes the margin for lack of confidence.
type ConfidenceFormula struct {
	Published            bool // formula of the published text, else of the released program
	Multiplier, Exponent float64
}

// Factor returns the factor for a confidence. At full confidence the released formula returns 1,
// and the published one with its default multiplier and exponent returns 4.
func (d ConfidenceFormula) Factor(confidence float64) float64 {
	if d.Published {
		return math.Pow(1+d.Multiplier/max(confidence, minConfidence), d.Exponent)
	}
	return 1 + d.Multiplier*math.Pow(1-min(max(confidence, 0), 1), d.Exponent)
}

// ChangeFilter keeps the current request if the change is below minChange, and limits the change to
// increase or decrease otherwise. All are percentages. Without a current request it does nothing.
func ChangeFilter(k resources.Kind, minChange, increase, decrease float64) Step {
	name := fmt.Sprintf("change from %g %% on, at most + %g %% or - %g %%", minChange, increase, decrease)
	return Step{Name: name, Apply: func(s Subject, in float64) float64 {
		result, _ := FilterChange(float64(s.Current.Value(k)), in, minChange, increase, decrease)
		return result
	}}
}

// Outcomes of FilterChange.
const (
	MinChangeFiltered = "min_change_filtered"
	MaxChangeCapped   = "max_change_capped"
)

// FilterChange is ChangeFilter for two amounts. It also returns the outcome, empty if it passed.
func FilterChange(current, wanted, minChange, increase, decrease float64) (result float64, outcome string) {
	if current <= 0 {
		return wanted, ""
	}
	percent := math.Abs(wanted-current) * 100 / current
	switch {
	case percent < minChange:
		return current, MinChangeFiltered
	case wanted > current && percent > increase:
		return current + current*increase/100, MaxChangeCapped
	case wanted < current && percent > decrease:
		return current - current*decrease/100, MaxChangeCapped
	}
	return wanted, ""
}

// OncePer keeps the last recommended target until interval has passed since it changed.
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

// NoDecrease keeps the current request if it is larger, up to the maximum of the recipe.
func NoDecrease(k resources.Kind, largest float64) Step {
	return Step{Name: "no decrease", Apply: func(s Subject, in float64) float64 {
		return max(in, min(float64(s.Current.Value(k)), largest))
	}}
}
