package admission

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/testkit"
)

func TestUserVPA_AppliesToNextPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vpas := vpafake.NewSimpleClientset(generatedByRecommender(), sizingPolicy(auto))
		pods := webhookOf(t, clusterWithWeb(nil), vpas)
		gets := func() string {
			synctest.Wait()
			answer, _ := created(t, pods)
			return cpuOf(answer)
		}
		require.Equal(t, "2", gets())
		people := vpas.AutoscalingV1().VerticalPodAutoscalers(testkit.Namespace)
		mine := testkit.VPA("mine", testkit.Mode(vpav1.UpdateModeRecreate), testkit.Recommend("c", "cpu=3"))
		_, err := people.Create(t.Context(), mine, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, "3", gets())
		mine = mine.DeepCopy()
		mine.Spec.UpdatePolicy.UpdateMode = new(vpav1.UpdateModeOff)
		_, err = people.Update(t.Context(), mine, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Empty(t, gets())
		require.NoError(t, people.Delete(t.Context(), "mine", metav1.DeleteOptions{}))
		require.Equal(t, "2", gets())
	})
}

// A pod has its resources before it is stored. The webhook writes no other object and patches only
// resources and annotations.
func TestPodHandler_PatchesOnlyResourcesAndAnnotations(t *testing.T) {
	policy := sizingPolicy(auto)
	for name, vpa := range map[string]*vpav1.VerticalPodAutoscaler{"made": generatedByRecommender(), "a person's": testkit.VPA("v", testkit.Recommend("c", "cpu=2"))} {
		kube, vpas := clusterWithWeb(nil), vpafake.NewSimpleClientset(vpa, policy, recordOf(policy, inPhase(loadlinev1alpha1.RolloutPhaseFullRollout), reverted("3", "4")))
		answer, _ := created(t, webhookOf(t, kube, vpas))
		require.Equal(t, "4", cpuOf(answer), name)
		patch, err := json.Marshal(answer.Patch)
		require.NoError(t, err)
		require.Subset(t, []string{
			"spec.containers.resources", "metadata.annotations", "metadata.annotations.vpaUpdates", "metadata.annotations.vpaObservedContainers",
		}, testkit.Patched(patch), name)
		require.Empty(t, testkit.Writes(append(kube.Actions(), vpas.Actions()...)...), name)
	}
}
