package view

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Reading is one VPA, read once for all its pods.
type Reading struct {
	Object *vpav1.VerticalPodAutoscaler
	Ranges convert.LimitRanges // of its namespace

	rules          policy.Rules
	recommendation map[string]resources.Bounds
	floors         map[string]resources.List // by container, below which nothing is lowered; they count in the recommendation
}

// NewReading reads a VPA.
func NewReading(vpa *vpav1.VerticalPodAutoscaler, ranges convert.LimitRanges) Reading {
	return Reading{
		Object: vpa, Ranges: ranges,
		rules:          convert.Rules(vpa),
		recommendation: convert.Recommendation(vpa.Status.Recommendation),
	}
}

// VPA returns the core value without pods. The per-VPA time of a quick OOM
// counts only with the feature gate PerVPAConfig.
func (r Reading) VPA(perVPAConfig bool) disruption.VPA {
	v := disruption.VPA{Namespace: r.Object.Namespace, Name: r.Object.Name, Mode: mode(convert.Mode(r.Object)), Requirements: convert.Requirements(r.Object)}
	p := r.Object.Spec.UpdatePolicy
	if p == nil {
		return v
	}
	if p.MinReplicas != nil {
		v.MinReplicas = int(*p.MinReplicas)
	}
	if p.EvictAfterOOMSeconds != nil && perVPAConfig {
		v.QuickOOM = time.Duration(*p.EvictAfterOOMSeconds) * time.Second
	}
	return v
}

func mode(m vpav1.UpdateMode) disruption.Mode {
	switch m {
	case vpav1.UpdateModeRecreate, vpav1.UpdateModeAuto:
		return disruption.Recreate
	case vpav1.UpdateModeInPlaceOrRecreate:
		return disruption.InPlaceOrRecreate
	case vpav1.UpdateModeInPlace:
		return disruption.InPlace
	case vpav1.UpdateModeInitial:
		return disruption.Initial
	}
	return disruption.Off
}

// Pod returns the core value of a pod that belongs to the group of that index.
func (r Reading) Pod(pod *corev1.Pod, group int) disruption.Pod {
	p := convert.RunningPod(pod, r.recommendation, r.rules, r.Ranges.Ranges)
	p.Group = group
	return p
}

// Ready reports whether a pod is ready, and since when.
func Ready(pod *corev1.Pod) (ready bool, since time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return true, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}
