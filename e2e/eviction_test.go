package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func TestEviction_FollowsInfeasibleResize(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "eviction"), Name: "worker", Replicas: 3,
		Containers:  []harness.Container{{Name: "app", CPU: "50m", Memory: "300Mi"}},
		Annotations: harness.With(harness.Uses("app", "400m", "320Mi"), harness.ResizeAnnotation, "infeasible"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate))
	watch := watchReady(t, w)

	eventually(t, "all pods replaced by larger ones", func() error {
		for _, pod := range pods(t, w) {
			cpu := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
			for _, old := range before {
				if pod.UID == old.UID {
					return fmt.Errorf("%s was not evicted, it requests %s", pod.Name, cpu.String())
				}
			}
			if cpu.MilliValue() < 400 {
				return fmt.Errorf("%s requests %s", pod.Name, cpu.String())
			}
		}
		return nil
	})
	awaitRunning(t, w)
	require.GreaterOrEqual(t, watch.minReady(), 1, "all replicas were away at once")
	events, err := cluster.KubectlOutput(t.Context(), "-n", w.Namespace, "get", "events", "--field-selector=reason=EvictedByVPA", "-o=name")
	require.NoError(t, err)
	require.NotEmpty(t, events, "no event tells of the eviction")
}

func TestEviction_ModeRecreateEvictsInsteadOfResizing(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "recreate"), Name: "worker", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "50m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "400m", "320Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeRecreate))
	eventually(t, "all pods replaced", func() error {
		for _, pod := range pods(t, w) {
			for _, old := range before {
				if pod.UID == old.UID {
					return fmt.Errorf("%s is still there", pod.Name)
				}
			}
			require.NotContains(t, pod.Annotations, "vpaInPlaceUpdated")
		}
		return nil
	})
	for _, pod := range awaitRunning(t, w) {
		atLeast(t, "400m", pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU], "CPU request of "+pod.Name)
	}
}
