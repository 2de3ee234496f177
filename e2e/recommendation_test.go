package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func TestRecommendation_ModeOffOnlyRecommends(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "recommendation"), Name: "web", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "128Mi"}},
		Annotations: harness.Uses("app", "500m", "600Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff))

	vpa := awaitRecommendation(t, w)
	got := vpa.Status.Recommendation.ContainerRecommendations[0]
	require.Equal(t, "app", got.ContainerName)
	atLeast(t, "500m", got.Target[corev1.ResourceCPU], "CPU target")
	atMost(t, "700m", got.Target[corev1.ResourceCPU], "CPU target")
	atLeast(t, "600Mi", got.Target[corev1.ResourceMemory], "memory target")
	atMost(t, "800Mi", got.Target[corev1.ResourceMemory], "memory target")
	for _, kind := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		require.Contains(t, got.LowerBound, kind)
		require.Contains(t, got.UpperBound, kind)
		require.Contains(t, got.UncappedTarget, kind)
	}
	require.Equal(t, vpa.Generation, vpa.Status.ObservedGeneration)
	require.Equal(t, vpav1.RecommendationProvided, vpa.Status.Conditions[0].Type)
	require.Equal(t, corev1.ConditionTrue, vpa.Status.Conditions[0].Status)

	table, err := cluster.KubectlOutput(t.Context(), "-n", w.Namespace, "get", "vpa")
	require.NoError(t, err)
	require.Regexp(t, `^NAME\s+MODE\s+CPU\s+MEM\s+PROVIDED\s+AGE\nweb\s+Off\s+\d+m\s+\d+\S*\s+True\s`, table)
	eventually(t, "checkpoint of web", func() error {
		_, err := cluster.KubectlOutput(t.Context(), "-n", w.Namespace, "get", "checkpoints", "web-app")
		return err
	})
	for _, explained := range []string{"vpa.spec", "vpa.status", "vpacheckpoint"} {
		text, err := cluster.KubectlOutput(t.Context(), "explain", explained, "--recursive")
		require.NoError(t, err)
		require.NotContains(t, text, "<empty>", "a field of %s has no description", explained)
	}

	after := pods(t, w)
	require.Len(t, after, len(before))
	for i := range after {
		require.Equal(t, before[i].UID, after[i].UID)
		require.Equal(t, before[i].Spec.Containers[0].Resources, after[i].Spec.Containers[0].Resources, "mode Off changes no pod")
	}
}
