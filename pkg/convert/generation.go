package convert

import (
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// MaxConditionMessage is the maximum length in bytes of a message in the conditions of a VPA.
// Longer ones are cut, also in caches.
const MaxConditionMessage = 8 << 10

// Outdated reports whether the recommendation in the status of a VPA may be for another target than the VPA has now.
// Since is the generation from which on it is known to have had this target: what was recommended for an earlier one
// may be for the pods of another workload. Other changes of the spec do not matter, because the rules of the new spec
// are applied to what is recommended anyway.
//
// A recommender that does not write which generation it has seen, as those before the
// reference VPA 1.8 do not, is taken at its word.
func Outdated(vpa *vpav1.VerticalPodAutoscaler, since int64) bool {
	seen := ObservedGeneration(vpa)
	return seen > 0 && seen < since
}

// Unreadable returns why the spec of a VPA could not be read whole; empty: it could.
func Unreadable(vpa *vpav1.VerticalPodAutoscaler) string {
	return vpa.Annotations[vpav1.UnreadableAnnotation]
}

// Unsupported returns why the recommender cannot use a VPA, by its condition; empty: it can.
func Unsupported(vpa *vpav1.VerticalPodAutoscaler) string {
	for i := range vpa.Status.Conditions {
		if c := &vpa.Status.Conditions[i]; c.Type == vpav1.ConfigUnsupported && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// ObservedGeneration returns the generation of a VPA that its recommendation was made for; 0: nobody wrote it.
func ObservedGeneration(vpa *vpav1.VerticalPodAutoscaler) int64 {
	seen := vpa.Status.ObservedGeneration
	for i := range vpa.Status.Conditions {
		if c := &vpa.Status.Conditions[i]; c.Type == vpav1.RecommendationProvided {
			seen = max(seen, c.ObservedGeneration)
		}
	}
	return seen
}

// WithoutRecommendation returns a VPA that recommends nothing and is otherwise the same. The original stays as it is.
func WithoutRecommendation(vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	without := *vpa
	without.Status.Recommendation = nil
	return &without
}
