package recommend

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

func TestPostProcess_MatchesVectors(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/vectors/recommender.json")
	require.NoError(t, err)
	var file struct {
		Vectors []struct {
			Kind  string
			Input struct {
				IntegerCPU       bool
				Annotations      map[string]string
				GlobalMaxAllowed corev1.ResourceList
				ResourcePolicy   *vpav1.PodResourcePolicy
				Recommendation   vpav1.RecommendedPodResources
			}
			Expected struct{ Recommendations []json.RawMessage }
		}
	}
	// Vectors of other kinds have fields of the same name with other types.
	var kinds struct{ Vectors []json.RawMessage }
	require.NoError(t, json.Unmarshal(raw, &kinds))
	tested := 0
	for _, v := range kinds.Vectors {
		var kind struct{ Kind string }
		require.NoError(t, json.Unmarshal(v, &kind))
		if kind.Kind != "postprocess" {
			continue
		}
		one := file.Vectors
		require.NoError(t, json.Unmarshal([]byte("["+string(v)+"]"), &one))
		in := one[0].Input
		vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: in.Annotations}, Spec: vpav1.VerticalPodAutoscalerSpec{ResourcePolicy: in.ResourcePolicy}}
		got := RoundAndCap(in.Recommendation.ContainerRecommendations, vpa, OutputLimits{IntegerCPU: in.IntegerCPU, MaxAllowed: in.GlobalMaxAllowed})
		for i, want := range one[0].Expected.Recommendations {
			text, err := json.Marshal(got[i])
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(text))
			tested++
		}
	}
	require.Positive(t, tested)
}
