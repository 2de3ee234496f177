package recommender

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/recipe"
)

// killedPod returns web-1 with one restart per kill.
func killedPod(kills ...time.Time) *corev1.Pod {
	p := aPod("web-1", "web", "a")
	p.ResourceVersion = fmt.Sprint(1 + len(kills))
	r := &p.Spec.Containers[0].Resources
	r.Requests[corev1.ResourceMemory] = resource.MustParse("100Mi")
	r.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2000Mi")}
	if n := len(kills); n > 0 {
		s := &p.Status.ContainerStatuses[0]
		s.RestartCount = int32(n)
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: "OOMKilled", FinishedAt: metav1.NewTime(kills[n-1]), ContainerID: fmt.Sprint("c", n)}
	}
	return p
}

func (w *world) oomsPending() {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return len(w.loop.Ingester.OOMs.Wake()) > 0 }, time.Minute, time.Millisecond)
}

// killedBetweenIterations kills a container that used 100 MiB, and 1800 MiB in the last sample.
// With early, the kill is handled before the sample arrives.
func killedBetweenIterations(t *testing.T, name string, sampled, killed time.Duration, early, deleted bool) *world {
	w := newWorld(t, deployment("web"), killedPod(), webVPA(name)).start()
	w.config.Output.Tolerance = 0
	w.setUsage("web-1", "a", 100, 100)
	w.iterate(12)
	sample := w.now.Add(sampled)
	_, err := w.kube.CoreV1().Pods("ns").Update(t.Context(), killedPod(w.now.Add(killed)), metav1.UpdateOptions{})
	require.NoError(t, err)
	w.oomsPending()
	if early {
		w.loop.HandleOOMs(t.Context(), w.now.Add(killed+time.Second))
	}
	if deleted {
		require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
		require.Eventually(t, func() bool {
			if early {
				w.loop.HandleOOMs(t.Context(), w.now.Add(killed+2*time.Second))
				return len(w.loop.removed) > 0
			}
			list, err := w.loop.Sketches.Pods.Pods("ns").List(labels.Everything())
			return err == nil && len(list) == 0
		}, time.Minute, time.Millisecond)
	}
	w.setUsage("web-1", "a", 100, 1800)
	w.clock = func() time.Time { return sample }
	w.iterate(1)
	return w
}

// The recommendation equals that of a kill handled in the next iteration.
func TestHandleOOMs_KeepsSamplesFromBeforeTheKill(t *testing.T) {
	for _, name := range recipe.Names() {
		for _, order := range []struct {
			name            string
			sampled, killed time.Duration
			deleted         bool
		}{
			{name: "sample before the kill", sampled: 40 * time.Second, killed: 52 * time.Second},
			{name: "sample in the second of the kill", sampled: 52 * time.Second, killed: 52 * time.Second},
			{name: "sample after the kill", sampled: 50 * time.Second, killed: 20 * time.Second},
			{name: "pod deleted after the kill", sampled: 40 * time.Second, killed: 52 * time.Second, deleted: true},
		} {
			t.Run(name+"/"+order.name, func(t *testing.T) {
				t.Parallel()
				late := killedBetweenIterations(t, name, order.sampled, order.killed, false, order.deleted)
				early := killedBetweenIterations(t, name, order.sampled, order.killed, true, order.deleted)
				require.Equal(t, late.recommendations("web"), early.recommendations("web"))
				if name == "vpa" {
					require.InDelta(t, 2.68e9, early.memory("web"), 0.1e9)
				}
			})
		}
	}
}
