package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// fromUsage returns the history of the containers of a VPA that follows from the usage of its pods.
func fromUsage(ctx context.Context, own versioned.Interface, q question, a *answer, e *estimator) (map[string]checkpoint.Past, error) {
	s, err := newSurroundings(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a.Problems = append(a.Problems, s.problems...)
	pods, err := livePods(ctx, q)
	if err != nil {
		return nil, err
	}
	var controlled []*corev1.Pod
	for i := range pods {
		by, err := s.control(ctx, &pods[i])
		switch {
		case err != nil:
			a.Problems = append(a.Problems, fmt.Sprintf("pod %s: %v", podName(&pods[i]), err))
		case by != nil && by.object.Name == q.Name:
			controlled = append(controlled, &pods[i])
		}
	}
	store, known, _ := e.histories(controlled, a.Choice)
	if len(known) == 0 {
		return nil, errors.New("Prometheus has no usage of the pods that the VPA controls now")
	}
	past := map[string]checkpoint.Past{}
	for container, h := range known {
		one := checkpoint.Past{Profile: store.ProfileOf(h.series)}
		if h.sketch != nil {
			one.Sketch = h.sketch.Image()
		}
		past[container] = one
	}
	return past, nil
}
