package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func TestRecommendation_PerContainer(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "two-containers"), Name: "pair", Replicas: 2,
		Containers: []harness.Container{
			{Name: "app", CPU: "50m", Memory: "300Mi"},
			{Name: "sidecar", CPU: "20m", Memory: "200Mi"},
			{Name: "untouched", CPU: "30m", Memory: "64Mi"},
		},
		Annotations: harness.Merge(harness.Uses("app", "600m", "350Mi"), harness.Uses("sidecar", "100m", "150Mi"), harness.Uses("untouched", "500m", "300Mi")),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := awaitRunning(t, w)
	off := vpav1.ContainerScalingModeOff
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
			{ContainerName: "untouched", Mode: &off},
			{ContainerName: "sidecar", MaxAllowed: corev1.ResourceList{corev1.ResourceCPU: *quantity("80m")}},
		}}
	}))
	eventually(t, "both containers resized", func() error {
		for _, pod := range pods(t, w) {
			app, sidecar := pod.Spec.Containers[0].Resources.Requests.Cpu(), pod.Spec.Containers[1].Resources.Requests.Cpu()
			if app.MilliValue() < 600 || sidecar.MilliValue() != 80 {
				return fmt.Errorf("%s: app requests %s, sidecar %s (its maximum is 80m)", pod.Name, app, sidecar)
			}
		}
		return nil
	})
	after := pods(t, w)
	for i, pod := range after {
		require.Equal(t, before[i].UID, pod.UID)
		require.Zero(t, restarts(&pod))
		require.Equal(t, before[i].Spec.Containers[2].Resources, pod.Spec.Containers[2].Resources, "mode Off of the container policy")
	}
	recommendations := getVPA(t, w).Status.Recommendation.ContainerRecommendations
	require.Len(t, recommendations, 2)
	require.Equal(t, "app", recommendations[0].ContainerName, "sorted by name")
	require.Equal(t, "80m", recommendations[1].Target.Cpu().String())
	require.Greater(t, recommendations[1].UncappedTarget.Cpu().MilliValue(), int64(100), "the uncapped target shows the need")
}
