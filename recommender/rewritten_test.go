package recommender

import (
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// A controller such as Goldilocks keeps replacing labels and spec. The recommender must not undo
// these writes.
func TestRecipeAnnotation_SurvivesSpecReplacement(t *testing.T) {
	alone, w := startedWorld(t, "loadline"), startedWorld(t, "loadline")
	alone.simulateUsage(600, 705)
	w.simulateUsage(600, 700)

	labels := map[string]string{"creator": "Fairwinds", "source": "goldilocks"}
	spec := vpav1.VerticalPodAutoscalerSpec{
		TargetRef:    &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff), MinReplicas: new(int32(1))},
	}
	for at := 700; at < 705; at++ {
		v := w.vpa("web")
		v.Labels, v.Spec = labels, spec
		v.Generation++
		_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Update(t.Context(), v, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.syncCaches()
		w.simulateUsage(at, at+1)
		require.Equal(t, labels, w.vpa("web").Labels)
		require.Equal(t, spec, w.vpa("web").Spec)
		require.Equal(t, "loadline", w.vpa("web").Annotations["loadline.dev/recipe"])
	}
	require.NotEqual(t, "vpa", w.loop.Model.Find("ns", "web").Recipe.Name)
	require.NotEmpty(t, alone.recommendations("web"))
	require.Equal(t, alone.recommendations("web"), w.recommendations("web"))
}
