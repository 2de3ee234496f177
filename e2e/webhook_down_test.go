package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// The test must not run in parallel with others, which need the webhook.
func TestWebhook_PodsStartWhileItIsDown(t *testing.T) {
	sequentialTest(t)
	admission.Kill()
	defer func() { require.NoError(t, admission.Start(t.Context())) }()
	w := harness.Workload{
		Namespace: namespace(t, "webhook-down"), Name: "shop", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "50m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "400m", "320Mi"),
	}
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInitial), "VPA objects can be created, too")
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	for _, pod := range awaitRunning(t, w) {
		require.Equal(t, "50m", pod.Spec.Containers[0].Resources.Requests.Cpu().String())
		require.NotContains(t, pod.Annotations, "vpaUpdates")
	}
}
