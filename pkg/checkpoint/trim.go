package checkpoint

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// someAnnotation stands for annotations in the cache: Saver must know only whether
// there are any.
var someAnnotation = map[string]string{OpenWindows: ""}

// Trim is a cache.TransformFunc that drops the histograms and annotations of
// checkpoints, because only Load needs them. That there are annotations stays
// visible.
func Trim(object any) (any, error) {
	c, ok := object.(*vpav1.VerticalPodAutoscalerCheckpoint)
	if !ok {
		return object, nil
	}
	trimmed := &vpav1.VerticalPodAutoscalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion},
		Spec:       c.Spec,
		Status: vpav1.VerticalPodAutoscalerCheckpointStatus{
			Version:           c.Status.Version,
			LastUpdateTime:    c.Status.LastUpdateTime,
			LastSampleStart:   c.Status.LastSampleStart,
			TotalSamplesCount: c.Status.TotalSamplesCount,
		},
	}
	if len(c.Annotations) > 0 {
		trimmed.Annotations = someAnnotation
	}
	return trimmed, nil
}
