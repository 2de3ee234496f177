package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// recommendSeparateLimit recommends a memory request, and the memory that the limit must protect.
func recommendSeparateLimit(t *testing.T, w harness.Workload, request, protected string) {
	t.Helper()
	vpa := getVPA(t, w)
	vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{
		{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		{Type: "SeparateMemoryLimit", Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
	}
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", LowerBound: resourceList("100m", request), Target: resourceList("100m", request), UpperBound: resourceList("100m", protected)}}}
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).UpdateStatus(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func awaitMemoryAndLimit(t *testing.T, w harness.Workload, request, limit string) []corev1.Pod {
	t.Helper()
	found := awaitMemory(t, w, request)
	for _, pod := range found {
		has := pod.Spec.Containers[0].Resources.Limits.Memory()
		require.Zero(t, has.Cmp(*quantity(limit)), "%s has a limit of %s", pod.Name, has)
	}
	return found
}

// A request that follows usage must not lower the memory limit, also not of new pods. If limit and
// request are equal, they stay equal.
func TestSeparateMemoryLimit_KeepsLimitAboveRequest(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "separate-limit", 2)
	w.Containers[0].MemoryLimit = "200Mi"
	before := startWorkload(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate, withRecommender("nobody")))
	equal := newWorkload(t, "equal-limit", 2)
	equal.Containers[0].MemoryLimit, equal.Containers[0].CPULimit = "100Mi", "100m"
	guaranteed := startWorkload(t, equal)
	require.NoError(t, cluster.CreateVPA(t.Context(), equal, vpav1.UpdateModeInPlaceOrRecreate, withRecommender("nobody")))

	recommendSeparateLimit(t, w, "60Mi", "120Mi")
	recommendSeparateLimit(t, equal, "60Mi", "120Mi")
	awaitMemoryAndLimit(t, w, "60Mi", "240Mi")
	for _, pod := range awaitMemoryAndLimit(t, equal, "120Mi", "120Mi") {
		require.Equal(t, corev1.PodQOSGuaranteed, pod.Status.QOSClass)
	}
	recommendSeparateLimit(t, w, "80Mi", "150Mi")
	for i, pod := range awaitMemoryAndLimit(t, w, "80Mi", "300Mi") {
		require.Equal(t, before[i].UID, pod.UID, "in place")
	}
	for i, pod := range pods(t, equal) {
		require.Equal(t, guaranteed[i].UID, pod.UID, "in place")
	}

	gone := before[0]
	require.NoError(t, cluster.Kube.CoreV1().Pods(w.Namespace).Delete(t.Context(), gone.Name, metav1.DeleteOptions{}))
	eventually(t, "a new pod stands in for "+gone.Name, func() error {
		for _, pod := range pods(t, w) {
			if pod.UID == gone.UID {
				return fmt.Errorf("%s is still there", gone.Name)
			}
		}
		return nil
	})
	for _, pod := range awaitMemoryAndLimit(t, w, "80Mi", "300Mi") {
		require.JSONEq(t, `{"app":{"requests":{"memory":"100Mi"},"limits":{"memory":"200Mi"}}}`, pod.Annotations["loadline.dev/declared-memory"])
	}
}
