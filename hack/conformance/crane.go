package main

import (
	"math"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

var now = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

type sampleCount struct {
	Value float64
	Count int
}

// newWeekSketch returns a sketch with the samples of both resources, in cores and bytes.
func newWeekSketch(size, maxValue [resources.Kinds]float64, minWeight float64, samples [resources.Kinds][]sampleCount) *sketch.Sketch {
	t := sketch.New(sketch.Needs{Kills: true, Weighted: sketch.NewWeightedShape(size, maxValue, minWeight, [resources.Kinds]time.Duration{craneAge, craneAge})})
	observe(t, samples)
	t.Now = now.UnixNano()
	return t
}

func observe(t *sketch.Sketch, samples [resources.Kinds][]sampleCount) {
	for k, all := range samples {
		for _, s := range all {
			for range s.Count {
				t.Weighted[k].Observe(now.UnixNano(), s.Value*[resources.Kinds]float64{1000, 1}[k])
			}
		}
	}
}

type percentileInput struct {
	BucketSize, MaxValue, MinSampleWeight, Percentile float64
	Samples                                           []sampleCount
}

type percentileOutput struct {
	Estimate float64 `json:"estimate"`
}

// cranePercentile treats the samples as bytes, which are not scaled, because the cases do not name
// the resource.
func cranePercentile(in percentileInput) (percentileOutput, error) {
	t := newWeekSketch([resources.Kinds]float64{1, in.BucketSize}, [resources.Kinds]float64{1, in.MaxValue}, in.MinSampleWeight, [resources.Kinds][]sampleCount{nil, in.Samples})
	return percentileOutput{t.Weighted[resources.Memory].Quantile(in.Percentile)}, nil
}

type chainInput struct {
	BucketSize, MarginFraction, MaxValue, Percentile float64
	Samples                                          []sampleCount
	TargetUtilization                                float64
}

func (in chainInput) run(k resources.Kind) []recipe.Value {
	var samples [resources.Kinds][]sampleCount
	samples[k] = in.Samples
	size, most := [resources.Kinds]float64{1, 1}, [resources.Kinds]float64{1, 1}
	size[k], most[k] = in.BucketSize, in.MaxValue
	var values []recipe.Value
	recipe.Chain{
		recipe.WeightedQuantile(k, in.Percentile), recipe.AddFraction(in.MarginFraction), recipe.Utilisation(in.TargetUtilization), recipe.Truncated(k),
	}.Run(recipe.Subject{Sketch: newWeekSketch(size, most, 0.00001, samples)}, &values)
	return values
}

type chainOutput struct {
	AfterPercentile        float64  `json:"afterPercentile"`
	AfterMargin            float64  `json:"afterMargin"`
	AfterTargetUtilization float64  `json:"afterTargetUtilization"`
	Millicores             *float64 `json:"millicores,omitempty"`
	Bytes                  *float64 `json:"bytes,omitempty"`
	Error                  *bool    `json:"error,omitempty"`
}

func chainCPU(in chainInput) (chainOutput, error) {
	v := in.run(resources.CPU)
	return chainOutput{AfterPercentile: v[0].Amount, AfterMargin: v[1].Amount, AfterTargetUtilization: v[2].Amount, Millicores: &v[3].Amount}, nil
}

func chainMemory(in chainInput) (chainOutput, error) {
	v := in.run(resources.Memory)
	return chainOutput{AfterPercentile: v[0].Amount, AfterMargin: v[1].Amount, AfterTargetUtilization: v[2].Amount,
		Bytes: &v[3].Amount, Error: new(v[3].Amount <= 0)}, nil
}

type oomRecord struct {
	Namespace, Pod, Container string
	MemoryBytes               resources.Amount
	AgeHours                  float64
}

// addKills adds the records of one container to a sketch. It matches pods to the workload by name,
// while production code uses their owners.
func addKills(t *sketch.Sketch, records []oomRecord, namespace, workload, container string) {
	for _, r := range records {
		if r.Namespace == namespace && r.Container == container && strings.HasPrefix(r.Pod, workload+"-") {
			t.ObserveKill(now.Add(-time.Duration(r.AgeHours*float64(time.Hour))), r.MemoryBytes, 0)
		}
	}
	t.Now = now.UnixNano()
}

type oomInput struct {
	BumpRatio, MinBumpBytes        float64
	Namespace, Workload, Container string
	RecommendedBytes               float64
	Records                        []oomRecord
}

type oomOutput struct {
	FinalBytes float64  `json:"finalBytes"`
	OOMBytes   *float64 `json:"oomBytes"`
}

const craneAge = 7 * 24 * time.Hour

func craneOOM(in oomInput) (out oomOutput, err error) {
	t := sketch.New(sketch.Needs{Kills: true})
	addKills(t, in.Records, in.Namespace, in.Workload, in.Container)
	step := recipe.AfterKill(in.MinBumpBytes, in.BumpRatio, craneAge)
	out.FinalBytes = step.Apply(recipe.Subject{Sketch: t}, in.RecommendedBytes)
	if alone := step.Apply(recipe.Subject{Sketch: t}, 0); alone > 0 {
		out.OOMBytes = &alone
	}
	return out, nil
}

type normaliseInput struct {
	CPUMillicores, MemoryBytes resources.Amount
	Specs                      string
}

type normaliseOutput struct {
	CPUMillicores *resources.Amount `json:"cpuMillicores,omitempty"`
	MemoryBytes   *resources.Amount `json:"memoryBytes,omitempty"`
	Matched       *bool             `json:"matched,omitempty"`
	Error         bool              `json:"error,omitempty"`
}

func normalise(in normaliseInput) (normaliseOutput, error) {
	shapes, err := recipe.ParseShapes(in.Specs)
	if err != nil {
		return normaliseOutput{Error: true}, nil //nolint:nilerr // that it fails is the result
	}
	shape, ok := recipe.Smallest(shapes, in.CPUMillicores, in.MemoryBytes)
	if !ok {
		shape = recipe.MachineShape{CPU: in.CPUMillicores, Memory: in.MemoryBytes}
	}
	return normaliseOutput{CPUMillicores: &shape.CPU, MemoryBytes: &shape.Memory, Matched: &ok}, nil
}

type fullInput struct {
	Namespace, Workload, Container string
	CPUSamples, MemorySamples      []sampleCount
	OOMRecords                     []oomRecord
	Specification                  bool
	TargetUtilization              float64
}

type fullOutput struct {
	CPU                string           `json:"cpu"`
	CPUBeforeNormalise float64          `json:"cpuBeforeNormalise"`
	CPUMillicores      resources.Amount `json:"cpuMillicores"`
	Memory             string           `json:"memory"`
	MemoryAfterMargin  float64          `json:"memoryAfterMargin"`
	MemoryAfterOOM     float64          `json:"memoryAfterOOM"`
	MemoryBytes        resources.Amount `json:"memoryBytes"`
}

// full runs the whole recipe without a minimum recommendation.
func full(in fullInput) (out fullOutput, err error) {
	shapes := "off"
	if in.Specification {
		shapes = "default"
	}
	parsed, err := recipe.Parse("crane:pod-min-cpu=0,pod-min-memory=0,shapes=" + shapes + ",target-utilisation=" + quote(in.TargetUtilization))
	if err != nil {
		return out, err
	}
	t := sketch.New(parsed.Needs)
	observe(t, [resources.Kinds][]sampleCount{in.CPUSamples, in.MemorySamples})
	addKills(t, in.OOMRecords, in.Namespace, in.Workload, in.Container)
	input := recipe.Input{Sketch: t, Containers: 1}
	bounds, steps := parsed.Recommend(input).Bounds, parsed.Explain(input)
	out.CPUMillicores, out.MemoryBytes = bounds.Target.Value(resources.CPU), bounds.Target.Value(resources.Memory)
	out.CPUBeforeNormalise = steps.Target[resources.CPU][3].Amount
	out.MemoryAfterMargin, out.MemoryAfterOOM = math.Floor(steps.Target[resources.Memory][3].Amount), steps.Target[resources.Memory][4].Amount
	out.CPU, out.Memory = printAmount(resources.CPU, out.CPUMillicores).Quantity, printAmount(resources.Memory, out.MemoryBytes).Quantity
	return out, nil
}
