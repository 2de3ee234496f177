package oldview

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
)

// Reading is one VPA, read once for all its pods.
type Reading struct {
	Object *vpav1.VerticalPodAutoscaler
	Ranges convert.LimitRanges // of its namespace

	Rules          policy.Rules
	Recommendation map[string]resources.Bounds
	floors         map[string]resources.List // minimum by container, part of Recommendation
}

// NewReading reads a VPA.
func NewReading(vpa *vpav1.VerticalPodAutoscaler, ranges convert.LimitRanges) Reading {
	return Reading{
		Object: vpa, Ranges: ranges,
		Rules:          convert.Rules(vpa),
		Recommendation: convert.Recommendation(vpa.Status.Recommendation),
	}
}

// VPA returns the core value without pods. The per-VPA time of a quick OOM
// counts only with the feature gate PerVPAConfig.
func (r Reading) VPA(perVPAConfig bool) disruption.VPA {
	v := disruption.VPA{Namespace: r.Object.Namespace, Name: r.Object.Name, Mode: mode(convert.Mode(r.Object)), Requirements: requirements(r.Object)}
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
	p := runningPod(pod, r.Recommendation, r.Rules, r.Ranges.Ranges)
	p.Group = group
	return p
}
