package cachesize

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/testkit"
)

func TestEstimateSize_MatchesHeap(t *testing.T) {
	c := testkit.Crowd{Pods: 500, Deployments: 100, Revisions: 2, Nodes: 10}
	for name, object := range map[string]func(i int) any{
		"pod": func(i int) any { return c.Pod(i).DeepCopy() },
		"VPA": func(i int) any { return c.VPA(i % c.Deployments).DeepCopy() },
		"labels": func(i int) any {
			p := &corev1.Pod{}
			p.Labels = map[string]string{}
			for n := range 50 {
				p.Labels[fmt.Sprint("label-", i, "-", n)] = fmt.Sprint("value-", n)
			}
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			object(0) // initializes package-level state
			before, all, estimate := testkit.LiveHeap(), make([]any, c.Pods), int64(0)
			for i := range all {
				all[i] = object(i)
			}
			heap := testkit.LiveHeap() - before
			for _, o := range all {
				estimate += EstimateSize(o)
			}
			t.Logf("heap %d, estimate %d", heap/500, estimate/500)
			require.InEpsilon(t, heap, estimate, 0.35)
			runtime.KeepAlive(all)
		})
	}
}

func TestWalk_CountsSharedMemoryOnce(t *testing.T) {
	shared := map[string]string{"app": "web"}
	w := sizeWalk{}
	first := w.objectSize(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: shared}})
	second := w.objectSize(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: shared}})
	require.Greater(t, first, second)
}
