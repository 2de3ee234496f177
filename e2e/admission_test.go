package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// In mode Initial, running pods keep their resources and new pods start with the target.
func TestWebhook_SetsResourcesOfNewPods(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "admission"), Name: "shop", Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "50m", Memory: "300Mi", MemoryLimit: "600Mi"}},
		Annotations: harness.Uses("app", "400m", "320Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	first := awaitRunning(t, w)[0]
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInitial))
	awaitRecommendation(t, w)

	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "scale", "deployment", w.Name, "--replicas=2"))
	w.Replicas = 2
	for _, pod := range awaitRunning(t, w) {
		requests := pod.Spec.Containers[0].Resources.Requests
		if pod.UID == first.UID {
			require.Equal(t, first.Spec.Containers[0].Resources, pod.Spec.Containers[0].Resources, "mode Initial changed a running pod")
			continue
		}
		atLeast(t, "400m", requests[corev1.ResourceCPU], "CPU request of the new pod")
		require.Contains(t, pod.Annotations["vpaUpdates"], "Pod resources updated by shop: container 0:")
		require.Equal(t, "app", pod.Annotations["vpaObservedContainers"])
		limit := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]
		require.Equal(t, 2*requests.Memory().Value(), limit.Value(), "the memory limit keeps its proportion to the request")
	}
}

func TestWebhook_RejectsInvalidVPA(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{Namespace: namespace(t, "invalid"), Name: "broken"}
	err := cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInitial, func(vpa *vpav1.VerticalPodAutoscaler) {
		zero := int32(0)
		vpa.Spec.UpdatePolicy.MinReplicas = &zero
	})
	require.ErrorContains(t, err, "spec.updatePolicy.minReplicas")
}
