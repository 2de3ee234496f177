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
	"loadline.dev/loadline/pkg/convert"
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
	trimmed.OwnerReferences, trimmed.GenerateName = fullOwners(v.OwnerReferences), ""
	trimmed.SelfLink = "" //nolint:staticcheck // a user may still write it
	trimmed.Kind, trimmed.APIVersion = word(v.Kind), word(v.APIVersion)
	if policy, made := v.Labels[fleet.PolicyLabel]; made {
		if trimmed.Labels = boundLabels(v.Labels); Dropped(trimmed.Labels) {
			trimmed.Labels = map[string]string{droppedKey: "", fleet.PolicyLabel: word(policy)}
		}
	}
	if problem := SpecTooLarge(&v.Spec); problem != "" {
		refuseSpec(trimmed, problem)
	}
	trimmed.Spec.TargetRef = boundTarget(trimmed.Spec.TargetRef)
	trimmed.Spec.ResourcePolicy = BoundPolicy(trimmed.Spec.ResourcePolicy)
	trimmed.Status.Conditions = boundConditions(v.Status.Conditions)
	if v.Status.Recommendation == nil {
		return trimmed
	}
	list := v.Status.Recommendation.ContainerRecommendations
	list = slices.Clone(list[:min(len(list), maxVPAContainers)])
	for i := range list {
		c := &list[i]
		c.ContainerName = word(c.ContainerName)
		c.Target, c.UncappedTarget = mainResources(c.Target), mainResources(c.UncappedTarget)
		c.LowerBound, c.UpperBound = mainResources(c.LowerBound), mainResources(c.UpperBound)
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

// refuseSpec takes the spec of a VPA that is not cached from a trimmed one.
func refuseSpec(trimmed *vpav1.VerticalPodAutoscaler, problem string) {
	trimmed.Spec = unusableSpec(&trimmed.Spec)
	if _, known := trimmed.Annotations[vpav1.UnreadableAnnotation]; !known {
		metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, vpav1.UnreadableAnnotation, problem)
	}
}

// BoundPolicy returns a resource policy for a cache, without resources other than CPU and memory in
// minAllowed and maxAllowed.
func BoundPolicy(p *vpav1.PodResourcePolicy) *vpav1.PodResourcePolicy {
	if p == nil {
		return nil
	}
	kept := &vpav1.PodResourcePolicy{ContainerPolicies: slices.Clone(p.ContainerPolicies)}
	for i := range kept.ContainerPolicies {
		c := &kept.ContainerPolicies[i]
		c.MinAllowed, c.MaxAllowed = mainResources(c.MinAllowed), mainResources(c.MaxAllowed)
	}
	return kept
}

func boundConditions(all []vpav1.VerticalPodAutoscalerCondition) []vpav1.VerticalPodAutoscalerCondition {
	kept := slices.Clone(all[:min(len(all), maxVPAConditions)])
	for i := range kept {
		c := &kept[i]
		c.Type, c.Status, c.Reason = word(c.Type), word(c.Status), word(c.Reason)
		c.Message = truncate(c.Message, convert.MaxConditionMessage)
	}
	return kept
}

// SpecTooLarge returns why the spec of a VPA is not cached, or nothing. Resources other than CPU
// and memory in minAllowed and maxAllowed do not count, because no cache keeps them.
func SpecTooLarge(s *vpav1.VerticalPodAutoscalerSpec) string {
	size := boostSize(s.StartupBoost)
	for _, r := range s.Recommenders {
		if size += valueOverhead; r != nil {
			size += len(r.Name)
		}
	}
	if p := s.UpdatePolicy; p != nil {
		size += optionalSize(p.UpdateMode)
		for _, r := range p.EvictionRequirements {
			if size += valueOverhead; r != nil {
				size += sizeOf(r.Resources) + len(r.ChangeRequirement)
			}
		}
	}
	if s.ResourcePolicy != nil {
		if n := len(s.ResourcePolicy.ContainerPolicies); n > maxVPAContainers {
			return fmt.Sprintf("spec.resourcePolicy.containerPolicies: must have at most %d entries, has %d", maxVPAContainers, n)
		}
		for i := range s.ResourcePolicy.ContainerPolicies {
			p := &s.ResourcePolicy.ContainerPolicies[i]
			size += len(p.ContainerName) + optionalSize(p.Mode) + optionalSize(p.ControlledValues) + boostSize(p.StartupBoost)
			if p.ControlledResources != nil {
				size += sizeOf(*p.ControlledResources)
			}
		}
	}
	if size > maxVPASpec {
		return fmt.Sprintf("spec: its names and lists must have at most %d KiB", maxVPASpec>>10)
	}
	return ""
}

func sizeOf(names []corev1.ResourceName) (n int) {
	for _, name := range names {
		n += len(name) + valueOverhead
	}
	return n
}

func optionalSize[T ~string](text *T) int {
	if text == nil {
		return 0
	}
	return len(*text)
}

func boostSize(b *vpav1.StartupBoost) int {
	if b == nil || b.CPU == nil {
		return 0
	}
	return len(b.CPU.Type)
}

// unusableSpec keeps the target and an unambiguous recommender. The VPA changes nothing.
func unusableSpec(s *vpav1.VerticalPodAutoscalerSpec) vpav1.VerticalPodAutoscalerSpec {
	off := vpav1.UpdateModeOff
	kept := vpav1.VerticalPodAutoscalerSpec{TargetRef: s.TargetRef, UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &off}}
	switch {
	case len(s.Recommenders) > 1: // no recommender serves it
		kept.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{}}
	case len(s.Recommenders) == 1 && s.Recommenders[0] != nil:
		kept.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: word(s.Recommenders[0].Name)}}
	}
	return kept
}

// boundTarget returns the target of a VPA. One that is too long for any object still names none.
func boundTarget(ref *autoscalingv1.CrossVersionObjectReference) *autoscalingv1.CrossVersionObjectReference {
	if ref == nil || len(ref.APIVersion)+len(ref.Kind)+len(ref.Name) <= maxReference {
		return ref
	}
	return &autoscalingv1.CrossVersionObjectReference{APIVersion: word(ref.APIVersion), Kind: word(ref.Kind), Name: word(ref.Name)}
}

// boundHPATarget is boundTarget for a HorizontalPodAutoscaler.
func boundHPATarget(ref autoscalingv2.CrossVersionObjectReference) autoscalingv2.CrossVersionObjectReference {
	return autoscalingv2.CrossVersionObjectReference(*boundTarget((*autoscalingv1.CrossVersionObjectReference)(&ref)))
}
