package client

import (
	"fmt"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/fleet"
)

// Bounds of a VPA in a cache.
const (
	maxVPAContainers  = 300      // with a policy, or with a recommendation
	maxVPASpec        = 64 << 10 // bytes of the names in the spec
	maxVPAConditions  = 32
	maxVPAAnnotations = 8 << 10 // bytes that are not ours
)

// trimVPA lets equal lists of a recommendation be one: where nothing was capped,
// the uncapped target is the target. These maps are most of the memory of a VPA.
func trimVPA(v *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	trimmed := &vpav1.VerticalPodAutoscaler{TypeMeta: v.TypeMeta, ObjectMeta: v.ObjectMeta, Spec: v.Spec, Status: v.Status}
	trimmed.ManagedFields, trimmed.Labels, trimmed.Annotations, trimmed.Finalizers = nil, nil, vpaAnnotations(v.Annotations), nil
	trimmed.OwnerReferences = firstN(v.OwnerReferences, maxOwners)
	trimmed.Kind, trimmed.APIVersion = constant(v.Kind), constant(v.APIVersion)
	if policy, made := v.Labels[fleet.PolicyLabel]; made {
		if trimmed.Labels = boundLabels(v.Labels); Dropped(trimmed.Labels) {
			trimmed.Labels = map[string]string{droppedKey: "", fleet.PolicyLabel: policy}
		}
	}
	if problem := specTooLarge(&v.Spec); problem != "" {
		trimmed.Spec = unusableSpec(&v.Spec)
		if _, known := trimmed.Annotations[vpav1.UnreadableAnnotation]; !known {
			metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, vpav1.UnreadableAnnotation, problem)
		}
	}
	trimmed.Spec.TargetRef = boundTarget(trimmed.Spec.TargetRef)
	if policy := trimmed.Spec.ResourcePolicy; policy != nil {
		trimmed.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: slices.Clone(policy.ContainerPolicies)}
	}
	trimmed.Status.Conditions = firstN(v.Status.Conditions, maxVPAConditions)
	if v.Status.Recommendation == nil {
		return trimmed
	}
	list := v.Status.Recommendation.ContainerRecommendations
	list = slices.Clone(list[:min(len(list), maxVPAContainers)])
	for i := range list {
		c := &list[i]
		c.Target, c.UncappedTarget = boundList(c.Target), boundList(c.UncappedTarget)
		c.LowerBound, c.UpperBound = boundList(c.LowerBound), boundList(c.UpperBound)
		if apiequality.Semantic.DeepEqual(c.UncappedTarget, c.Target) {
			c.UncappedTarget = c.Target
		}
	}
	trimmed.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: list}
	return trimmed
}

// vpaAnnotations keeps the annotations of a VPA other than those of kubectl: of too many only ours.
func vpaAnnotations(annotations map[string]string) map[string]string {
	var kept map[string]string
	foreign := 0
	for key, value := range annotations {
		if key == corev1.LastAppliedConfigAnnotation {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
		foreign += len(key) + len(value)
	}
	if foreign <= maxVPAAnnotations {
		return kept
	}
	kept = ours(kept)
	kept[droppedKey] = ""
	return kept
}

// specTooLarge returns why the spec of a VPA is not cached, or nothing.
func specTooLarge(s *vpav1.VerticalPodAutoscalerSpec) string {
	size := 0
	for _, r := range s.Recommenders {
		if size += valueOverhead; r != nil {
			size += len(r.Name)
		}
	}
	if s.UpdatePolicy != nil {
		for _, r := range s.UpdatePolicy.EvictionRequirements {
			if size += valueOverhead; r != nil {
				size += namesOf(r.Resources)
			}
		}
	}
	if s.ResourcePolicy != nil {
		if n := len(s.ResourcePolicy.ContainerPolicies); n > maxVPAContainers {
			return fmt.Sprintf("spec.resourcePolicy.containerPolicies: must have at most %d entries, has %d", maxVPAContainers, n)
		}
		for i := range s.ResourcePolicy.ContainerPolicies {
			p := &s.ResourcePolicy.ContainerPolicies[i]
			size += len(p.ContainerName) + namesIn(p.MinAllowed) + namesIn(p.MaxAllowed)
			if p.ControlledResources != nil {
				size += namesOf(*p.ControlledResources)
			}
		}
	}
	if size > maxVPASpec {
		return fmt.Sprintf("spec: its names and lists must have at most %d KiB", maxVPASpec>>10)
	}
	return ""
}

func namesOf(names []corev1.ResourceName) (n int) {
	for _, name := range names {
		n += len(name) + valueOverhead
	}
	return n
}

// namesIn returns the bytes of the names in a list, and listOverhead for each beyond maxResources.
func namesIn(list corev1.ResourceList) int {
	n := listOverhead * max(len(list)-maxResources, 0)
	for name := range list {
		n += len(name)
	}
	return n
}

// listOverhead is the memory of one resource in a list besides its name.
const listOverhead = 128

// unusableSpec keeps the target and an unambiguous recommender. The VPA changes nothing.
func unusableSpec(s *vpav1.VerticalPodAutoscalerSpec) vpav1.VerticalPodAutoscalerSpec {
	off := vpav1.UpdateModeOff
	kept := vpav1.VerticalPodAutoscalerSpec{TargetRef: s.TargetRef, Recommenders: s.Recommenders,
		UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &off}}
	if len(s.Recommenders) > 1 { // no recommender serves it
		kept.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{}}
	}
	return kept
}

// boundTarget returns the target of a VPA. One that is too long for any object still names none.
func boundTarget(ref *autoscalingv1.CrossVersionObjectReference) *autoscalingv1.CrossVersionObjectReference {
	if ref == nil || len(ref.APIVersion)+len(ref.Kind)+len(ref.Name) <= maxReference {
		return ref
	}
	return &autoscalingv1.CrossVersionObjectReference{APIVersion: truncate(ref.APIVersion, maxReference),
		Kind: truncate(ref.Kind, maxReference), Name: truncate(ref.Name, maxReference)}
}

// boundHPATarget is boundTarget for a HorizontalPodAutoscaler.
func boundHPATarget(ref autoscalingv2.CrossVersionObjectReference) autoscalingv2.CrossVersionObjectReference {
	return autoscalingv2.CrossVersionObjectReference(*boundTarget((*autoscalingv1.CrossVersionObjectReference)(&ref)))
}
