package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// A container that is killed for want of memory gets more, in place, until it
// lives.
func TestOOMKilledPodRecovers(t *testing.T) {
	t.Parallel()
	w := harness.Workload{
		Namespace: namespace(t, "oom"), Name: "hungry", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "256Mi", CPULimit: "200m", MemoryLimit: "300Mi"}},
		Annotations: harness.Plays("app", "growing", 10),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate))
	eventually(t, "an OOM kill", func() error {
		for _, pod := range pods(t, w) {
			if restarts(&pod) > 0 {
				return nil
			}
		}
		return fmt.Errorf("no container was killed yet")
	})
	eventually(t, "more memory for both pods", func() error {
		for _, pod := range pods(t, w) {
			limit := pod.Spec.Containers[0].Resources.Limits.Memory()
			if limit.Cmp(*quantity("300Mi")) <= 0 {
				return fmt.Errorf("%s has a memory limit of %s", pod.Name, limit)
			}
		}
		return nil
	})
	for i, pod := range pods(t, w) {
		require.Equal(t, before[i].UID, pod.UID, "the pod was evicted though it could be resized")
	}
}
