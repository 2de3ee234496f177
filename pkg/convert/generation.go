package convert

import (
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// MaxConditionMessage is the maximum length of VPA condition messages in bytes, also in caches.
const MaxConditionMessage = 8 << 10

// IsOutdated reports whether the recommendation of a VPA may be for an earlier target reference,
// and so for the pods of another workload. The current target reference exists at least since the
// given generation. Other spec changes do not matter, because the current rules are applied anyway.
// A recommendation without an observed generation is trusted, as the reference VPA before 1.8
// writes none.
func IsOutdated(vpa *vpav1.VerticalPodAutoscaler, since int64) bool {
	seen := ObservedGeneration(vpa)
	return seen > 0 && seen < since
}

// UnreadableReason returns why a VPA spec could not be parsed completely, or an empty string.
func UnreadableReason(vpa *vpav1.VerticalPodAutoscaler) string {
	return vpa.Annotations[vpav1.UnreadableAnnotation]
}

// UnsupportedReason returns the message of a true condition ConfigUnsupported, or an empty string.
func UnsupportedReason(vpa *vpav1.VerticalPodAutoscaler) string {
	for i := range vpa.Status.Conditions {
		if c := &vpa.Status.Conditions[i]; c.Type == vpav1.ConfigUnsupported && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// ObservedGeneration returns the VPA generation of the recommendation, 0 if unknown.
func ObservedGeneration(vpa *vpav1.VerticalPodAutoscaler) int64 {
	seen := vpa.Status.ObservedGeneration
	for i := range vpa.Status.Conditions {
		if c := &vpa.Status.Conditions[i]; c.Type == vpav1.RecommendationProvided {
			seen = max(seen, c.ObservedGeneration)
		}
	}
	return seen
}

// WithoutRecommendation returns a copy of a VPA without its recommendation.
func WithoutRecommendation(vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	without := *vpa
	without.Status.Recommendation = nil
	return &without
}
