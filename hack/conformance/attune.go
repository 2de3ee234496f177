package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

func quote(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// sample is a time and a number. The number may be text such as NaN.
type sample struct {
	at    time.Time
	value float64
}

// UnmarshalJSON reads [time, number or text].
func (s *sample) UnmarshalJSON(raw []byte) error {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(raw, &pair); err != nil {
		return err
	}
	if err := json.Unmarshal(pair[0], &s.at); err != nil {
		return err
	}
	var text string
	if json.Unmarshal(pair[1], &text) == nil {
		var err error
		s.value, err = strconv.ParseFloat(text, 64)
		return err
	}
	return json.Unmarshal(pair[1], &s.value)
}

type generator struct {
	Count       int
	Start       time.Time
	StepSeconds int
	Value       string
}

type profileInput struct {
	Samples   []sample
	Generator *generator
}

type quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (q quantiles) scaled(f float64) sketch.Quantiles {
	return sketch.Quantiles{P50: q.P50 * f, P90: q.P90 * f, P95: q.P95 * f, P99: q.P99 * f, Max: q.Max * f}
}

type profileOutput struct {
	BurstDetected  bool                 `json:"burstDetected"`
	BurstMagnitude float64              `json:"burstMagnitude"`
	Confidence     float64              `json:"confidence"`
	DataPoints     int                  `json:"dataPoints"`
	Hourly         map[string]quantiles `json:"hourly"`
	Overall        quantiles            `json:"overall"`
	TimeSpanDays   float64              `json:"timeSpanDays"`
}

func profile(in profileInput) (out profileOutput, err error) {
	var at []int64
	var uses []float64
	for _, s := range in.Samples {
		at, uses = append(at, s.at.Unix()), append(uses, s.value)
	}
	if g := in.Generator; g != nil {
		if g.Value != "0.3 when UTC hour is 14 else 0.2" {
			return out, fmt.Errorf("input: generator %q is unknown", g.Value)
		}
		for i := range g.Count {
			t := g.Start.Add(time.Duration(i*g.StepSeconds) * time.Second).UTC()
			use := 0.2
			if t.Hour() == 14 {
				use = 0.3
			}
			at, uses = append(at, t.Unix()), append(uses, use)
		}
	}
	h := newHabits(at, uses)
	out = profileOutput{
		BurstDetected: h.Burst > 0, BurstMagnitude: h.Burst, Confidence: h.Confidence, DataPoints: h.Points,
		Hourly: map[string]quantiles{}, Overall: quantiles(h.Overall), TimeSpanDays: h.Days,
	}
	for hour, known := range h.Known {
		if known {
			out.Hourly[strconv.Itoa(hour)] = quantiles(h.Hourly[hour])
		}
	}
	return out, nil
}

// newHabits computes habits from samples at seconds since 1970. NaN and infinite values are
// dropped, as sources do, but the time of the first sample always counts.
func newHabits(at []int64, uses []float64) sketch.UsageProfile {
	var h sketch.UsageProfile
	var all sketch.SortedAmounts
	var hourly [len(h.Hourly)]sketch.SortedAmounts
	var first, last int64
	for i, use := range uses {
		if i == 0 {
			first, last = at[0], at[0]
		}
		if math.IsNaN(use) || math.IsInf(use, 0) {
			continue
		}
		first, last = min(first, at[i]), max(last, at[i])
		hour := time.Unix(at[i], 0).UTC().Hour()
		all, hourly[hour] = append(all, use), append(hourly[hour], use)
	}
	for hour, of := range hourly {
		slices.Sort(of)
		h.Known[hour], h.Hourly[hour] = len(of) > 0, sketch.QuantilesOf(of)
	}
	slices.Sort(all)
	h.Overall = sketch.QuantilesOf(all)
	if len(all) > 0 {
		h.Assess(len(all), float64(last-first)/3600/24)
	}
	return h
}

type habits struct {
	BurstDetected              bool
	BurstMagnitude, Confidence float64
	Hourly                     map[string]quantiles
	Overall                    quantiles
}

// forKind returns the habits in the unit of a resource.
func (h habits) forKind(k resources.Kind) (*sketch.UsageProfile, error) {
	scale := [resources.Kinds]float64{1000, 1}[k]
	out := &sketch.UsageProfile{Overall: h.Overall.scaled(scale), Confidence: h.Confidence}
	if h.BurstDetected {
		out.Burst = h.BurstMagnitude
	}
	for name, q := range h.Hourly {
		hour, err := strconv.Atoi(name)
		if err != nil || hour < 0 || hour > 23 {
			return nil, fmt.Errorf("input: hour %q", name)
		}
		out.Hourly[hour], out.Known[hour] = q.scaled(scale), true
	}
	return out, nil
}

type attuneInput struct {
	BurstSensitivity                              *float64
	Current, Min, Max                             string
	MaxIncreasePercent, MaxDecreasePercent        float64
	MinChangePercent, OverheadPercent, Percentile float64
	Profile                                       habits
	Resource                                      string
}

// printedAmount is an amount in the format of the vectors.
type printedAmount struct {
	Millicores *resources.Amount `json:"millicores,omitempty"`
	Bytes      *resources.Amount `json:"bytes,omitempty"`
	Quantity   string            `json:"quantity"`
}

func printAmount(k resources.Kind, a resources.Amount) printedAmount {
	q := convert.Quantity(k, a)
	if k == resources.CPU {
		return printedAmount{Millicores: &a, Quantity: q.String()}
	}
	return printedAmount{Bytes: &a, Quantity: q.String()}
}

func amounts(k resources.Kind, texts ...string) ([]resources.Amount, error) {
	var all []resources.Amount
	for _, text := range texts {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("input: quantity %q: %w", text, err)
		}
		all = append(all, convert.Amount(k, q))
	}
	return all, nil
}

// doubt is the formula of confidence with its published constants. minChange is the published
// minimum change in percent.
var doubt = recipe.ConfidenceFormula{Multiplier: 1, Exponent: 2}

const minChange = 10

type attuneOutput struct {
	RawPercentile             printedAmount `json:"rawPercentile"`
	AfterOverhead             printedAmount `json:"afterOverhead"`
	AfterBurst                printedAmount `json:"afterBurst"`
	AfterConfidence           printedAmount `json:"afterConfidence"`
	AfterBounds               printedAmount `json:"afterBounds"`
	Final                     printedAmount `json:"final"`
	BoundsApplied             string        `json:"boundsApplied"`
	BurstFactor               float64       `json:"burstFactor"`
	ChangeFilterApplied       string        `json:"changeFilterApplied"`
	Changed                   bool          `json:"changed"`
	ConfidenceFactor          float64       `json:"confidenceFactor"`
	EffectiveMaxChangePercent float64       `json:"effectiveMaxChangePercent"`
}

func chain(in attuneInput) (out attuneOutput, err error) {
	k := resources.CPU
	if in.Resource == "memory" {
		k = resources.Memory
	}
	given, err := amounts(k, in.Current, in.Min, in.Max)
	if err != nil {
		return out, err
	}
	current, least, most := given[0], given[1], given[2]
	h, err := in.Profile.forKind(k)
	if err != nil {
		return out, err
	}
	sensitivity := vectors.ValueOr(in.BurstSensitivity, 0.1)
	config := recipe.Attune{
		Percentile: in.Percentile, Overhead: in.OverheadPercent, Sensitivity: sensitivity, Confidence: doubt, MinChange: minChange, Min: float64(least), Max: float64(most),
		MaxIncrease: in.MaxIncreasePercent, MaxDecrease: in.MaxDecreasePercent, MayDecrease: true,
	}
	v := steps(config.Chain(k, func(recipe.Subject) *sketch.UsageProfile { return h }), k, current)
	out = attuneOutput{
		RawPercentile: printAmount(k, v[0]), AfterOverhead: printAmount(k, v[1]), AfterBurst: printAmount(k, v[2]), AfterConfidence: printAmount(k, v[3]),
		AfterBounds: printAmount(k, v[4]), Final: printAmount(k, v[5]), Changed: v[5] != current,
		BurstFactor: recipe.BurstFactor(h.Burst, sensitivity), ConfidenceFactor: doubt.Factor(h.Confidence),
	}
	switch {
	case v[4] > v[3]:
		out.BoundsApplied = "min"
	case v[4] < v[3]:
		out.BoundsApplied = "max"
	}
	_, out.ChangeFilterApplied = recipe.FilterChange(float64(current), float64(v[4]), minChange, in.MaxIncreasePercent, in.MaxDecreasePercent)
	out.EffectiveMaxChangePercent = in.MaxIncreasePercent
	if v[4] < current {
		out.EffectiveMaxChangePercent = in.MaxDecreasePercent
	}
	return out, nil
}

type confidenceInput struct {
	Confidence, Exponent, Floor float64
	Inner                       string
	Multiplier                  float64
}

type confidenceOutput struct {
	Factor float64       `json:"factor"`
	Result printedAmount `json:"result"`
}

func documentedConfidence(in confidenceInput) (out confidenceOutput, err error) {
	if in.Floor != 0.1 {
		return out, fmt.Errorf("input: constants are not those of the published text")
	}
	inner, err := amounts(resources.CPU, in.Inner)
	if err != nil {
		return out, err
	}
	factor := recipe.ConfidenceFormula{Published: true, Multiplier: in.Multiplier, Exponent: in.Exponent}.Factor(in.Confidence)
	return confidenceOutput{factor, printAmount(resources.CPU, resources.FromFloat(math.Ceil(float64(inner[0])*factor)))}, nil
}

type pipelineInput struct {
	Confidence                        float64
	Current, Max, Min                 string
	MaxChangePercent, OverheadPercent float64
	P95                               string
}

type pipelineOutput struct {
	AfterMargin     string `json:"afterMargin"`
	AfterConfidence string `json:"afterConfidence"`
	AfterBounds     string `json:"afterBounds"`
	Final           string `json:"final"`
}

func documentedPipeline(in pipelineInput) (out pipelineOutput, err error) {
	a, err := amounts(resources.CPU, in.Current, in.Min, in.Max, in.P95)
	if err != nil {
		return out, err
	}
	h := &sketch.UsageProfile{Overall: sketch.Quantiles{P95: float64(a[3])}, Confidence: in.Confidence}
	published := doubt
	published.Published = true
	config := recipe.Attune{
		Percentile: 95, Overhead: in.OverheadPercent, Confidence: published, MinChange: minChange, Min: float64(a[1]), Max: float64(a[2]),
		MaxIncrease: in.MaxChangePercent, MaxDecrease: in.MaxChangePercent, MayDecrease: true,
	}
	v := steps(config.Chain(resources.CPU, func(recipe.Subject) *sketch.UsageProfile { return h }), resources.CPU, a[0])
	text := func(i int) string { return printAmount(resources.CPU, v[i]).Quantity }
	return pipelineOutput{AfterMargin: text(1), AfterConfidence: text(3), AfterBounds: text(4), Final: text(5)}, nil
}

type capsInput struct {
	MaxChangePercent, MaxIncreasePercent float64
	MaxDecreasePercent                   float64
}

type capsOutput struct {
	Increase float64 `json:"increase"`
	Decrease float64 `json:"decrease"`
}

func changeCaps(in capsInput) (out capsOutput, err error) {
	out.Increase, out.Decrease = recipe.Attune{MaxChange: in.MaxChangePercent, MaxIncrease: in.MaxIncreasePercent, MaxDecrease: in.MaxDecreasePercent}.ChangeLimits()
	return out, nil
}

type fromCPUInput struct {
	AllowDecrease                      bool
	CPURecommended, CurrentMemory, Max string
	MaxChangePercent                   float64
	Min                                string
	OverheadPercent, Ratio             float64
}

type fromCPUOutput struct {
	Applied         bool          `json:"applied"`
	Memory          printedAmount `json:"memory"`
	DecreaseBlocked bool          `json:"decreaseBlocked"`
}

// memoryFromCPU runs the chain only with a ratio, like the recipe.
func memoryFromCPU(in fromCPUInput) (out fromCPUOutput, err error) {
	cpu, err := amounts(resources.CPU, in.CPURecommended)
	if err != nil {
		return out, err
	}
	a, err := amounts(resources.Memory, in.CurrentMemory, in.Min, in.Max)
	if err != nil {
		return out, err
	}
	out.Memory = printAmount(resources.Memory, a[0])
	if out.Applied = in.Ratio > 0; !out.Applied {
		return out, nil
	}
	config := recipe.Attune{
		Overhead: in.OverheadPercent, Min: float64(a[1]), Max: float64(a[2]), MinChange: minChange, MaxChange: in.MaxChangePercent, MayDecrease: in.AllowDecrease, FromCPU: in.Ratio,
	}
	given := recipe.Chain{{Name: "recommended", Apply: func(recipe.Subject, float64) float64 { return float64(cpu[0]) }}}
	v := steps(config.MemoryChain(given), resources.Memory, a[0])
	out.Memory = printAmount(resources.Memory, v[len(v)-1])
	out.DecreaseBlocked = !in.AllowDecrease && v[len(v)-1] > v[len(v)-2]
	return out, nil
}

// steps returns the amount after each estimator of a chain for a container with a request.
func steps(c recipe.Chain, k resources.Kind, current resources.Amount) (amounts []resources.Amount) {
	var values []recipe.Value
	c.Run(recipe.Subject{Current: resources.List{}.With(k, current)}, &values)
	for _, v := range values {
		amounts = append(amounts, resources.FromFloat(v.Amount))
	}
	return amounts
}
