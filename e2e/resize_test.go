package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func TestResize_InPlaceWithoutRestart(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "resize"), Name: "api", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "50m", Memory: "300Mi", CPULimit: "100m", MemoryLimit: "600Mi"}},
		Annotations: harness.Uses("app", "400m", "320Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate))

	eventually(t, "both pods resized", func() error {
		for _, pod := range pods(t, w) {
			cpu := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
			status := pod.Status.ContainerStatuses[0].Resources
			if cpu.MilliValue() < 400 || status == nil || status.Requests.Cpu().Cmp(cpu) != 0 {
				return fmt.Errorf("%s requests %s, the node runs it with %v", pod.Name, cpu.String(), status)
			}
		}
		return nil
	})
	after := pods(t, w)
	require.Len(t, after, len(before))
	for i, pod := range after {
		require.Equal(t, before[i].UID, pod.UID, "a pod was replaced")
		require.Zero(t, restarts(&pod))
		require.Equal(t, "true", pod.Annotations["vpaInPlaceUpdated"])
		resources := pod.Spec.Containers[0].Resources
		require.Equal(t, 2*resources.Requests.Cpu().MilliValue(), resources.Limits.Cpu().MilliValue(), "the limit keeps its proportion to the request")
	}
	events, err := cluster.KubectlOutput(t.Context(), "-n", w.Namespace, "get", "events", "--field-selector=reason=InPlaceResizedByVPA", "-o=name")
	require.NoError(t, err)
	require.NotEmpty(t, events, "no event tells of the resize")
}
