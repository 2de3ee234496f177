package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// recommendSlightlyMore creates a VPA with slightly more memory than the requests of newWorkload,
// within its bounds: too small a change, except after an OOM kill.
func recommendSlightlyMore(t *testing.T, w harness.Workload, mode vpav1.UpdateMode, memory string, change ...func(*vpav1.VerticalPodAutoscaler)) {
	t.Helper()
	require.NoError(t, cluster.CreateVPA(t.Context(), w, mode, append(change, withRecommender("nobody"))...))
	recommendMemory(t, w, memory)
}

func recommendMemory(t *testing.T, w harness.Workload, memory string) {
	t.Helper()
	vpa := getVPA(t, w)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", LowerBound: resourceList("50m", "50Mi"), Target: resourceList("100m", memory), UpperBound: resourceList("1", "1Gi")}}}
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).UpdateStatus(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func killForMemory(t *testing.T, w harness.Workload, after time.Duration) {
	t.Helper()
	for _, pod := range pods(t, w) {
		if began := pod.Status.StartTime; time.Since(began.Time) < after {
			time.Sleep(time.Until(began.Add(after)))
		}
	}
	annotate(t, w, map[string]string{"sim.loadline.dev/oom": "app"})
}

func awaitKilled(t *testing.T, w harness.Workload) {
	t.Helper()
	eventually(t, "the containers of "+w.Namespace+" are killed and run again", func() error {
		for _, pod := range pods(t, w) {
			if restarts(&pod) == 0 || !isReady(&pod) {
				return fmt.Errorf("%s has %d restarts", pod.Name, restarts(&pod))
			}
		}
		return nil
	})
}

func awaitMemory(t *testing.T, w harness.Workload, memory string) []corev1.Pod {
	t.Helper()
	var found []corev1.Pod
	eventually(t, "pods of "+w.Namespace+" request "+memory, func() error {
		if found = pods(t, w); len(found) != int(w.Replicas) {
			return fmt.Errorf("%d pods", len(found))
		}
		for _, pod := range found {
			if has := pod.Spec.Containers[0].Resources.Requests.Memory(); has.Cmp(*quantity(memory)) != 0 {
				return fmt.Errorf("%s requests %s", pod.Name, has)
			}
		}
		return nil
	})
	return found
}

// An OOM kill soon after the start triggers a change although the pod is within its bounds, young,
// and close to its target.
func TestOOMKill_QuickKillTriggersSmallChange(t *testing.T) {
	parallelTest(t)
	t.Run("Recreate", func(t *testing.T) {
		t.Parallel()
		w := newWorkload(t, "oom-quick-recreate", 2)
		before := startWorkload(t, w)
		recommendSlightlyMore(t, w, vpav1.UpdateModeRecreate, "104Mi")
		awaitSkipped(t, w.Namespace, "SmallChange")
		killForMemory(t, w, 0)
		for i, pod := range awaitMemory(t, w, "104Mi") {
			require.NotEqual(t, before[i].UID, pod.UID)
		}
		require.Contains(t, evictionsOf(t, w), "(OutOfMemory)")
	})
	t.Run("InPlaceOrRecreate", func(t *testing.T) {
		t.Parallel()
		w := newWorkload(t, "oom-quick-inplace", 2)
		before := startWorkload(t, w)
		recommendSlightlyMore(t, w, vpav1.UpdateModeInPlaceOrRecreate, "104Mi")
		awaitSkipped(t, w.Namespace, "SmallChange")
		killForMemory(t, w, 0)
		for i, pod := range awaitMemory(t, w, "104Mi") {
			require.Equal(t, before[i].UID, pod.UID)
		}
		require.Empty(t, evictionsOf(t, w))
	})
}

// After an OOM kill of a container that ran longer, a small change is still skipped and a large one
// is applied.
func TestOOMKill_SlowKillKeepsThresholds(t *testing.T) {
	parallelTest(t)
	for _, mode := range []vpav1.UpdateMode{vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlaceOrRecreate} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newWorkload(t, "oom-slow-"+map[vpav1.UpdateMode]string{vpav1.UpdateModeRecreate: "recreate", vpav1.UpdateModeInPlaceOrRecreate: "inplace"}[mode], 2)
			before := startWorkload(t, w)
			recommendSlightlyMore(t, w, mode, "104Mi", func(vpa *vpav1.VerticalPodAutoscaler) {
				vpa.Spec.UpdatePolicy.EvictAfterOOMSeconds = new(int32(8))
			})
			awaitSkipped(t, w.Namespace, "SmallChange")
			killForMemory(t, w, 20*time.Second)
			awaitKilled(t, w)
			during(t, 10*time.Second, func() {
				for i, pod := range pods(t, w) {
					require.Equal(t, before[i].UID, pod.UID, "a pod was replaced")
					require.Equal(t, "100Mi", pod.Spec.Containers[0].Resources.Requests.Memory().String())
				}
			})
			recommendMemory(t, w, "150Mi")
			awaitMemory(t, w, "150Mi")
			require.NotContains(t, evictionsOf(t, w), "(OutOfMemory)")
		})
	}
}

func evictionsOf(t *testing.T, w harness.Workload) string {
	t.Helper()
	out, err := cluster.KubectlOutput(t.Context(), "-n", w.Namespace, "get", "events", "--field-selector=reason=EvictedByVPA", "-o=jsonpath={.items[*].message}")
	require.NoError(t, err)
	return out
}
