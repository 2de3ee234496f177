// Package snapshot converts informer caches to plain values.
//
// A loop iteration reads the VPAs (ReadVPAs), then their pods (ReadPods). Queues read one VPA and
// its pods at a time (Controlling, Siblings). Objects that cause a panic are skipped.
package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
)

// Informer reports whether a cache is complete.
type Informer interface{ HasSynced() bool }

// Reader reads VPAs and pods from informer caches. Only the scale of custom workloads is requested,
// by the target resolver. ReadVPAs and ReadPods must be called from one goroutine.
type Reader struct {
	VPAs         vpalisters.VerticalPodAutoscalerLister
	VPAIndex     cache.Indexer // of VPAs, with target.Indexers
	Pods         corelisters.PodLister
	LimitRanges  corelisters.LimitRangeLister
	Targets      *target.Resolver
	Namespaces   flags.Namespaces    // to serve
	PerVPAConfig bool                // feature gate
	Generations  *target.Generations // detects recommendations for an earlier target

	states VersionCache[*State]
	logged map[target.Key]bool // owners with too many pod labels in the last iteration
}

// VPA is one VPA, in any mode.
type VPA struct {
	Object         *vpav1.VerticalPodAutoscaler
	Target         target.Key // zero: none
	Mode           disruption.Mode
	Generated      bool   // by the recommender, for a SizingPolicy
	Unreadable     string // why the object cannot be decoded, or empty
	Outdated       bool   // the recommendation may belong to an earlier target
	Rules          policy.Rules
	Recommendation map[string]resources.Bounds
	Floors         map[string]resources.List // minimum by container, included in Recommendation
	Ranges         *convert.LimitRanges      // of its namespace, shared

	err error // why it cannot be converted
}

// Key returns namespace and name.
func (v *VPA) Key() cache.ObjectName { return cache.MetaObjectToName(v.Object) }

// Find returns the index of a VPA in the result of ReadVPAs, or -1.
func Find(vpas []VPA, name cache.ObjectName) int {
	i, found := slices.BinarySearchFunc(vpas, name, func(v VPA, name cache.ObjectName) int {
		return cmp.Or(cmp.Compare(v.Object.Namespace, name.Namespace), cmp.Compare(v.Object.Name, name.Name))
	})
	if !found {
		return -1
	}
	return i
}

// NewVPA converts a VPA. Nil ranges mean that its namespace has no LimitRanges.
func NewVPA(vpa *vpav1.VerticalPodAutoscaler, ranges *convert.LimitRanges) VPA {
	if ranges == nil {
		ranges = &convert.LimitRanges{}
	}
	return VPA{
		Object: vpa, Ranges: ranges, Mode: ModeOf(vpa), Generated: convert.IsGenerated(vpa), Unreadable: convert.UnreadableReason(vpa),
		Rules:          convert.Rules(vpa),
		Recommendation: convert.Recommendation(vpa.Status.Recommendation),
		Target:         TargetOf(vpa),
	}
}

// TargetOf returns the target of a VPA, or zero without one.
func TargetOf(vpa *vpav1.VerticalPodAutoscaler) target.Key {
	if vpa.Spec.TargetRef == nil {
		return target.Key{}
	}
	return target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
}

// ModeOf returns the mode of a VPA. Unknown modes are Off.
func ModeOf(vpa *vpav1.VerticalPodAutoscaler) disruption.Mode {
	switch convert.Mode(vpa) {
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

// Core returns the plan input without pods. EvictAfterOOMSeconds requires gate PerVPAConfig.
func (v *VPA) Core(perVPAConfig bool) disruption.VPA {
	core := disruption.VPA{Namespace: v.Object.Namespace, Name: v.Object.Name, Mode: v.Mode, Outdated: v.Outdated, Requirements: convert.Requirements(v.Object)}
	p := v.Object.Spec.UpdatePolicy
	if p == nil {
		return core
	}
	if p.MinReplicas != nil {
		core.MinReplicas = int(*p.MinReplicas)
	}
	if p.EvictAfterOOMSeconds != nil && perVPAConfig {
		core.QuickOOMTime = time.Duration(*p.EvictAfterOOMSeconds) * time.Second
	}
	return core
}

// Pod returns a pod of the VPA with its targets.
func (v *VPA) Pod(pod *corev1.Pod) disruption.Pod {
	return convert.RunningPod(pod, v.Recommendation, v.Rules, v.Ranges.Ranges)
}

// ReadVPAs returns the VPAs of the served namespaces, by namespace and name.
func (r *Reader) ReadVPAs(ctx context.Context) ([]VPA, error) {
	objects, err := r.VPAs.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list VPAs: %w", err)
	}
	objects = slices.DeleteFunc(objects, func(o *vpav1.VerticalPodAutoscaler) bool { return !r.Namespaces.Includes(o.Namespace) })
	slices.SortFunc(objects, func(a, b *vpav1.VerticalPodAutoscaler) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	vpas, ranges := make([]VPA, len(objects)), map[string]*convert.LimitRanges{}
	for i, o := range objects {
		if vpas[i], err = r.readVPA(o, ranges); err != nil {
			vpas[i] = VPA{Object: o, Target: TargetOf(o), Mode: ModeOf(o), Generated: convert.IsGenerated(o), err: err}
		}
	}
	return vpas, nil
}

func (r *Reader) readVPA(vpa *vpav1.VerticalPodAutoscaler, ranges map[string]*convert.LimitRanges) (v VPA, err error) {
	defer serving.Recover(&err)
	if ranges[vpa.Namespace] == nil {
		of, err := r.rangesOf(vpa.Namespace)
		if err != nil {
			return v, err
		}
		ranges[vpa.Namespace] = of
	}
	v = NewVPA(vpa, ranges[vpa.Namespace])
	v.Outdated = r.Generations.Outdated(vpa)
	return v, nil
}

func (r *Reader) rangesOf(namespace string) (*convert.LimitRanges, error) {
	objects, err := r.LimitRanges.LimitRanges(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list LimitRanges of namespace %s: %w", namespace, err)
	}
	slices.SortFunc(objects, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	return new(convert.Ranges(objects)), nil
}

// View is the input of disruption.Plan: the VPAs with pods that may change. A VPA without its
// policy is included and held, with the pods that have a share mark.
type View struct {
	disruption.View

	// By VPA of the view: its index among all VPAs, and the states of its pods in order.
	Index  []int
	States [][]*State

	Skipped []disruption.Skip // pods outside of the view
}
