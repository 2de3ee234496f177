package main

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/recommend"
	"loadline.dev/loadline/recommender/status"
)

// estimation holds options that differ from the flag defaults.
type estimation struct {
	SafetyMarginFraction, PodMinCPUMillicores          *float64
	PodMinMemoryMb, TargetCPUPercentile                *float64
	LowerBoundCPUPercentile, UpperBoundCPUPercentile   *float64
	TargetMemoryPercentile, LowerBoundMemoryPercentile *float64
	UpperBoundMemoryPercentile                         *float64
	ConfidenceIntervalCPUSeconds                       *float64
	ConfidenceIntervalMemorySeconds                    *float64
}

func (e estimation) config() recipe.Config {
	d := recipe.DefaultConfig()
	return recipe.Config{
		Target:     [resources.Kinds]float64{vectors.ValueOr(e.TargetCPUPercentile, d.Target[resources.CPU]), vectors.ValueOr(e.TargetMemoryPercentile, d.Target[resources.Memory])},
		Lower:      [resources.Kinds]float64{vectors.ValueOr(e.LowerBoundCPUPercentile, d.Lower[resources.CPU]), vectors.ValueOr(e.LowerBoundMemoryPercentile, d.Lower[resources.Memory])},
		Upper:      [resources.Kinds]float64{vectors.ValueOr(e.UpperBoundCPUPercentile, d.Upper[resources.CPU]), vectors.ValueOr(e.UpperBoundMemoryPercentile, d.Upper[resources.Memory])},
		Margin:     vectors.ValueOr(e.SafetyMarginFraction, d.Margin),
		PodMinCPU:  vectors.ValueOr(e.PodMinCPUMillicores, d.PodMinCPU),
		Confidence: [resources.Kinds]time.Duration{vectors.SecondsOr(e.ConfidenceIntervalCPUSeconds, d.Confidence[resources.CPU]), vectors.SecondsOr(e.ConfidenceIntervalMemorySeconds, d.Confidence[resources.Memory])},

		PodMinMemory: vectors.ValueOr(e.PodMinMemoryMb, d.PodMinMemory),
	}
}

type rounding struct {
	HumanizeMemory                       bool
	RoundCPUMillicores, RoundMemoryBytes int64
}

func (r rounding) format() convert.Format {
	return convert.Format{CPUStep: r.RoundCPUMillicores, MemoryStep: r.RoundMemoryBytes, HumanizeMemory: r.HumanizeMemory}
}

type sampleSeries struct {
	Start       time.Time
	StepSeconds float64
	Count       int
	Cycle       []float64
}

func (s sampleSeries) each(f func(value float64, at time.Time)) {
	for i := range s.Count {
		f(s.Cycle[i%len(s.Cycle)], s.Start.Add(time.Duration(i)*vectors.Seconds(s.StepSeconds)))
	}
}

type recommendationInput struct {
	Aggregation aggregation
	Config      estimation
	Format      rounding
	Containers  map[string]struct {
		CPUSeries, MemorySeries []sampleSeries
		ControlledResources     *[]corev1.ResourceName
	}
}

type rawBounds struct {
	Target     map[string]resources.Amount `json:"target"`
	LowerBound map[string]resources.Amount `json:"lowerBound"`
	UpperBound map[string]resources.Amount `json:"upperBound"`
}

func raw(r resources.List) map[string]resources.Amount {
	m := map[string]resources.Amount{}
	for k := range resources.Kind(resources.Kinds) {
		if a, ok := r.Get(k); ok {
			m[k.String()] = a
		}
	}
	return m
}

type recommendationOutput struct {
	Raw             map[string]rawBounds `json:"raw"`
	Recommendations []status.Recommended `json:"recommendations"`
}

func recommendation(in recommendationInput) (out recommendationOutput, err error) {
	chains, shape := recipe.VPA(in.Config.config()), in.Aggregation.config().Shape
	out.Raw = map[string]rawBounds{}
	format := in.Format.format()
	for _, name := range slices.Sorted(maps.Keys(in.Containers)) {
		c := in.Containers[name]
		past := usage.NewProfile(shape)
		for _, s := range c.CPUSeries {
			s.each(func(millicores float64, at time.Time) { past.AddCPU(millicores/1000, at) })
		}
		for _, s := range c.MemorySeries {
			s.each(past.AddPeak)
		}
		vpa := withPolicies(vpav1.ContainerResourcePolicy{ContainerName: name, ControlledResources: c.ControlledResources})
		b := dropUncontrolled(convert.Rules(vpa).For(name), chains.Recommend(recipe.Input{Profile: &past, Containers: len(in.Containers)}).Bounds)
		out.Raw[name] = rawBounds{Target: raw(b.Target), LowerBound: raw(b.Lower), UpperBound: raw(b.Upper)}
		out.Recommendations = append(out.Recommendations, status.Recommended{
			ContainerName: name, Target: format.List(b.Target), UncappedTarget: format.List(b.Target),
			LowerBound: format.List(b.Lower), UpperBound: format.List(b.Upper),
		})
	}
	return out, nil
}

func withPolicies(policies ...vpav1.ContainerResourcePolicy) *vpav1.VerticalPodAutoscaler {
	return &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"},
		Spec:       vpav1.VerticalPodAutoscalerSpec{ResourcePolicy: &vpav1.PodResourcePolicy{ContainerPolicies: policies}},
	}
}

type formatInput struct {
	Cases []struct {
		CPUMillicores, MemoryBytes resources.Amount
		rounding
	}
}

type formatOutput struct {
	Results []corev1.ResourceList `json:"results"`
}

func format(in formatInput) (out formatOutput, err error) {
	for _, c := range in.Cases {
		out.Results = append(out.Results, c.format().List(resources.NewList(c.CPUMillicores, c.MemoryBytes)))
	}
	return out, nil
}

type postprocessInput struct {
	IntegerCPU       bool
	Annotations      map[string]string
	GlobalMaxAllowed map[corev1.ResourceName]string
	ResourcePolicy   *vpav1.PodResourcePolicy
	Recommendation   vpav1.RecommendedPodResources
}

type postprocessOutput struct {
	Recommendations []status.Recommended `json:"recommendations"`
}

func postProcess(in postprocessInput) (out postprocessOutput, err error) {
	limits := recommend.OutputLimits{IntegerCPU: in.IntegerCPU, MaxAllowed: corev1.ResourceList{}}
	for name, text := range in.GlobalMaxAllowed {
		if limits.MaxAllowed[name], err = resource.ParseQuantity(text); err != nil {
			return out, err
		}
	}
	vpa := withPolicies()
	vpa.Annotations, vpa.Spec.ResourcePolicy = in.Annotations, in.ResourcePolicy
	out.Recommendations = recommend.RoundAndCap(in.Recommendation.ContainerRecommendations, vpa, limits)
	return out, nil
}

func dropUncontrolled(rule policy.Rule, b resources.Bounds) resources.Bounds {
	for k := range resources.Kind(resources.Kinds) {
		if !rule.Controlled[k] {
			b.Target, b.Lower, b.Upper = b.Target.Without(k), b.Lower.Without(k), b.Upper.Without(k)
		}
	}
	return b
}
