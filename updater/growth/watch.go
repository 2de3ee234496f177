package growth

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
)

// Watch returns a channel that says when a VPA recommends more memory than before
// for any container. It says it once as long as nobody takes it.
func Watch(vpas cache.SharedInformer) (<-chan struct{}, error) {
	grown := make(chan struct{}, 1)
	_, err := vpas.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		was, ok := before.(*vpav1.VerticalPodAutoscaler)
		if is, same := after.(*vpav1.VerticalPodAutoscaler); ok && same && moreMemory(was.Status.Recommendation, is.Status.Recommendation) {
			select {
			case grown <- struct{}{}:
			default: // it has been said
			}
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watch recommendations: %w", err)
	}
	return grown, nil
}

func moreMemory(was, is *vpav1.RecommendedPodResources) bool {
	if is == nil || was == is {
		return false
	}
	before := convert.Recommendation(was)
	for name, bounds := range convert.Recommendation(is) {
		if bounds.Target.Value(amount.Memory) > before[name].Target.Value(amount.Memory) {
			return true
		}
	}
	return false
}
