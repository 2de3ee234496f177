package explain

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// historyFromUsage returns the history of the containers of a VPA from the usage of its pods.
func historyFromUsage(ctx context.Context, own versioned.Interface, q inventory.Request, a *vpaReport, e *inventory.Estimator) (map[string]checkpoint.Past, error) {
	s, err := inventory.NewReader(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a.Problems = append(a.Problems, s.Problems...)
	pods, err := inventory.LivePods(ctx, q)
	if err != nil {
		return nil, err
	}
	var controlled []*corev1.Pod
	for i := range pods {
		by, err := s.Controlling(ctx, &pods[i])
		switch {
		case err != nil:
			a.Problems = append(a.Problems, fmt.Sprintf("pod %s: %v", cli.PodName(&pods[i]), err))
		case by != nil && by.Object.Name == q.Name:
			controlled = append(controlled, &pods[i])
		}
	}
	store, known, _ := e.Histories(controlled, a.Choice)
	if len(known) == 0 {
		return nil, errors.New("Prometheus has no usage of the pods that the VPA controls now")
	}
	past := map[string]checkpoint.Past{}
	for container, h := range known {
		one := checkpoint.Past{Profile: store.ProfileOf(h.Series)}
		if h.Sketch != nil {
			one.Sketch = h.Sketch.Image()
		}
		past[container] = one
	}
	return past, nil
}
