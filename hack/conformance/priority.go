package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/updater/snapshot"
)

type priorityInput struct {
	Config struct {
		PodUpdateThreshold, InBoundsLifetimeSeconds *float64
		EvictAfterOOMSeconds                        *float64
	}
	Now          time.Time
	Pods         []corev1.Pod
	VPA          *vpav1.VerticalPodAutoscaler
	LimitRanges  [][]corev1.LimitRangeItem
	FeatureGates gates
}

type priority struct {
	Pod         string  `json:"pod"`
	OutOfBounds bool    `json:"outsideRecommendedRange"`
	Grows       bool    `json:"scaleUp"`
	Change      float64 `json:"resourceDiff"`
	Accepted    bool    `json:"accepted"`
	Admitted    bool    `json:"admittedByEvictionRequirements"`
}

type priorityOutput struct {
	Pods  []priority `json:"pods"`
	Order []string   `json:"updateOrder"`
}

// updatePriority takes the order from a plan that may evict every pod.
func updatePriority(in priorityInput) (out priorityOutput, err error) {
	config := disruption.Config{
		Tolerance:    1,
		Threshold:    vectors.ValueOr(in.Config.PodUpdateThreshold, 0.1),
		Lifetime:     vectors.SecondsOr(in.Config.InBoundsLifetimeSeconds, 12*time.Hour),
		QuickOOMTime: vectors.SecondsOr(in.Config.EvictAfterOOMSeconds, 10*time.Minute),
	}
	read := newSnapshot(in.VPA, in.LimitRanges)
	v := read.Core(in.FeatureGates["PerVPAConfig"])
	v.Mode, v.Groups = disruption.Recreate, []disruption.Group{{Replicas: disruption.Unknown}}
	for i := range in.Pods {
		in.Pods[i].UID = types.UID(in.Pods[i].Name)
		v.Pods = append(v.Pods, read.Pod(&in.Pods[i]))
	}
	for i := range v.Pods {
		a := disruption.Assess(&v, &v.Pods[i], config, in.Now)
		out.Pods = append(out.Pods, priority{Pod: v.Pods[i].Name, OutOfBounds: a.OutOfBounds, Grows: a.Grows, Change: a.Change,
			Accepted: a.Reason == "" || a.Reason == reason.RequirementsNotMet, Admitted: a.Reason == ""})
	}
	out.Order = []string{}
	for _, a := range disruption.Plan(disruption.View{VPAs: []disruption.VPA{v}}, disruption.State{}, config, in.Now).Actions {
		out.Order = append(out.Order, a.Pod)
	}
	return out, nil
}

// gates are the feature gates of a case. Missing gates are off.
type gates map[string]bool

func newSnapshot(vpa *vpav1.VerticalPodAutoscaler, limitRanges [][]corev1.LimitRangeItem) *snapshot.VPA {
	return new(snapshot.NewVPA(vpa, new(ranges(limitRanges))))
}

func ranges(limitRanges [][]corev1.LimitRangeItem) convert.LimitRanges {
	var objects []*corev1.LimitRange
	for _, items := range limitRanges {
		objects = append(objects, &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: items}})
	}
	return convert.Ranges(objects)
}
