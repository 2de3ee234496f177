// Package updating translates the vectors of updater.json into calls of production
// code: the handlers read pods and VPAs through the updater's own view, ask package
// disruption, and build patches with package actuate. It computes nothing that
// production code computes.
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

// gates are the feature gates of a case; what is missing is off.
type gates map[string]bool

func reading(vpa *vpav1.VerticalPodAutoscaler, limitRanges [][]corev1.LimitRangeItem) view.Reading {
	var objects []*corev1.LimitRange
	for _, items := range limitRanges {
		objects = append(objects, &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: items}})
	}
	return view.NewReading(vpa, convert.Ranges(objects))
}
