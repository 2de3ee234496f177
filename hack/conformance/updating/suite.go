package updating

import (
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/testkit/vectors"
	"loadline.dev/loadline/updater/view"
)

// Handlers returns the handlers by kind.
func Handlers() map[string]vectors.Handler {
	return map[string]vectors.Handler{
		"update_priority":   vectors.Typed(updatePriority),
		"disruption_budget": vectors.Typed(disruptionBudget),
		"resize_patch":      vectors.Typed(resizePatch),
	}
}

// ByDesign returns the cases in which the updater differs from the reference.
func ByDesign() map[string]vectors.Deviation {
	return map[string]vectors.Deviation{
		"prio-quick-oom": {
			Reason: "upstream 1.8.1 itself: an out-of-memory kill counts only for as long as the threshold, and these are 12 hours old",
			Expected: `{
				"pods": [
					{"pod": "oom599", "accepted": false, "admittedByEvictionRequirements": false, "outsideRecommendedRange": false, "resourceDiff": 0.2, "scaleUp": true},
					{"pod": "oom600", "accepted": false, "admittedByEvictionRequirements": false, "outsideRecommendedRange": false, "resourceDiff": 0.2, "scaleUp": true},
					{"pod": "nochange", "accepted": false, "admittedByEvictionRequirements": false, "outsideRecommendedRange": false, "resourceDiff": 0, "scaleUp": false},
					{"pod": "tiny", "accepted": false, "admittedByEvictionRequirements": false, "outsideRecommendedRange": false, "resourceDiff": 8.669766587948942e-09, "scaleUp": true}
				],
				"updateOrder": []
			}`,
		},
	}
}

// gates are the feature gates of a case; what is missing is off.
type gates map[string]bool

func reading(vpa *vpav1.VerticalPodAutoscaler, limitRanges [][]corev1.LimitRangeItem) view.Reading {
	var objects []*corev1.LimitRange
	for _, items := range limitRanges {
		objects = append(objects, &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: items}})
	}
	return view.NewReading(vpa, convert.Ranges(objects))
}
