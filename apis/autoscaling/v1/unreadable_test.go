package v1

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The schema lets them pass, and the library of Kubernetes takes minutes for the first
// of them: without a guard this test does not end.
func TestAQuantityThatCannotBeComputedWithSpoilsNoOtherVPA(t *testing.T) {
	const policies, recommendations = `"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"a","minAllowed":{"cpu":%s}}]}}`,
		`"status":{"recommendation":{"containerRecommendations":[{"containerName":"a","target":{"cpu":%s}}]}}`
	for quantity, wrong := range map[string]string{
		`"1e-2147483647"`:                       "exponent",
		`"1E+999999"`:                           "exponent",
		`1e-2147483647`:                         "exponent",
		`"1\u0065-2147483647"`:                  "exponent",
		`"` + strings.Repeat("9", 100000) + `"`: "longer than 64 bytes",
	} {
		for at, part := range map[string]string{
			"spec.resourcePolicy.containerPolicies[0].minAllowed.cpu":            policies,
			"status.recommendation.containerRecommendations[0].target.cpu":       recommendations,
			"spec.resourcePolicy.containerPolicies[0].startupBoost.cpu.quantity": `"spec":{"targetRef":{"kind":"Deployment"},"resourcePolicy":{"containerPolicies":[{"startupBoost":{"cpu":{"quantity":%s}}}]}}`,
		} {
			text := `{"items":[{"metadata":{"name":"bad","namespace":"ns"},` + fmt.Sprintf(part, quantity) + `},{"metadata":{"name":"good"},"spec":{"targetRef":{"kind":"Deployment","name":"7e1234567"}}}]}`
			var list VerticalPodAutoscalerList
			require.NoError(t, json.Unmarshal([]byte(text), &list))
			bad := list.Items[0]
			require.Equal(t, "ns/bad", bad.Namespace+"/"+bad.Name)
			require.Contains(t, bad.Annotations[UnreadableAnnotation], at)
			require.Contains(t, bad.Annotations[UnreadableAnnotation], wrong)
			require.Nil(t, bad.Spec.TargetRef)
			require.Nil(t, bad.Spec.ResourcePolicy)
			require.Nil(t, bad.Status.Recommendation)
			require.Equal(t, "7e1234567", list.Items[1].Spec.TargetRef.Name, "a name is no quantity")
			require.Empty(t, list.Items[1].Annotations)
		}
	}
}

func TestUsualQuantitiesAreRead(t *testing.T) {
	for _, quantity := range []string{"250m", "1e3", "1E18", "1e-3", "9223372036854775807", "100T", "0.25", "+1.5"} {
		var v VerticalPodAutoscaler
		text := `{"metadata":{"name":"7e123456","annotations":{"note":"\u003c1e99999\u003e"}},"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"7e1234567","maxAllowed":{"cpu":"` + quantity + `"}}]}}}`
		require.NoError(t, json.Unmarshal([]byte(text), &v), quantity)
		require.Equal(t, map[string]string{"note": "<1e99999>"}, v.Annotations)
		require.False(t, v.Spec.ResourcePolicy.ContainerPolicies[0].MaxAllowed.Cpu().IsZero(), quantity)
	}
}

func TestErrorsNameTheTypeOfAVPA(t *testing.T) {
	var v VerticalPodAutoscaler
	require.ErrorContains(t, json.Unmarshal([]byte(`{"spec":7}`), &v), "Go struct field VerticalPodAutoscaler.spec of type")
}
