package v1

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// Such quantities pass the schema, and parsing the first of them takes the Kubernetes library
// minutes. Without a guard, this test does not end.
func TestVPADecode_InvalidQuantityKeepsOtherVPAs(t *testing.T) {
	const spec = `"targetRef":{"kind":"Deployment","name":"web"},"updatePolicy":{"updateMode":"InPlace"},"recommenders":[{"name":"mine"}]`
	for _, tc := range []struct{ name, quantity, want string }{
		{name: "exponent", quantity: `"1e-2147483647"`, want: "exponent"},
		{name: "capital exponent with a sign", quantity: `"1E+999999"`, want: "exponent"},
		{name: "exponent of a number", quantity: `1e-2147483647`, want: "exponent"},
		{name: "escaped exponent", quantity: `"1\u0065-2147483647"`, want: "exponent"},
		{name: "too long", quantity: `"` + strings.Repeat("9", 100000) + `"`, want: "longer than 64 bytes"},
		{name: "exponent without digits", quantity: `"1e.5"`, want: `"1e.5" is not a quantity`},
		{name: "fractional exponent", quantity: `"1e1.5"`, want: "is not a quantity"},
		{name: "exponent with a trailing dot", quantity: `"1e5."`, want: "is not a quantity"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for at, part := range map[string]string{
				"spec.resourcePolicy.containerPolicies[0].minAllowed.cpu": `"resourcePolicy":{"containerPolicies":` +
					`[{"containerName":"a","minAllowed":{"cpu":%s}}]}}`,
				"spec.resourcePolicy.containerPolicies[0].startupBoost.cpu.quantity": `"resourcePolicy":{"containerPolicies":` +
					`[{"startupBoost":{"cpu":{"quantity":%s}}}]}}`,
				"spec.startupBoost.cpu.quantity": `"startupBoost":{"cpu":{"quantity":%s}}}`,
			} {
				text := `{"items":[{"metadata":{"name":"bad","namespace":"ns"},"status":{"observedGeneration":7},"spec":{` + spec + `,` +
					fmt.Sprintf(part, tc.quantity) +
					`},{"metadata":{"name":"good"},"spec":{"targetRef":{"kind":"Deployment","name":"7e1234567"}}}]}`
				var list VerticalPodAutoscalerList
				require.NoError(t, json.Unmarshal([]byte(text), &list))
				bad := list.Items[0]
				require.Equal(t, "ns/bad", bad.Namespace+"/"+bad.Name)
				require.Contains(t, bad.Annotations[UnreadableAnnotation], at)
				require.Contains(t, bad.Annotations[UnreadableAnnotation], tc.want)
				require.Equal(t, "web", bad.Spec.TargetRef.Name, "it keeps its target, or its history would be thrown away")
				require.Equal(t, UpdateModeInPlace, *bad.Spec.UpdatePolicy.UpdateMode)
				require.Equal(t, "mine", bad.Spec.Recommenders[0].Name)
				require.Nil(t, bad.Spec.ResourcePolicy)
				require.Nil(t, bad.Spec.StartupBoost)
				require.EqualValues(t, 7, bad.Status.ObservedGeneration)
				require.Equal(t, "7e1234567", list.Items[1].Spec.TargetRef.Name, "a name is no quantity")
				require.Empty(t, list.Items[1].Annotations)
			}
		})
	}
}

// The annotation is set only by the decoder, with a bounded length.
func TestVPADecode_OwnsUnreadableAnnotation(t *testing.T) {
	var v VerticalPodAutoscaler
	require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"annotations":{"loadline.dev/unreadable":"x"}},"spec":{}}`), &v))
	require.Empty(t, v.Annotations)
	require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"annotations":{"loadline.dev/unreadable":"x"}},"status":7}`), &v))
	require.Empty(t, v.Annotations)
	long := `{"spec":{"resourcePolicy":{"containerPolicies":[{"minAllowed":{"` + strings.Repeat("x", 10000) + `":"1e.5"}}]}}}`
	require.NoError(t, json.Unmarshal([]byte(long), &v))
	require.Less(t, len(v.Annotations[UnreadableAnnotation]), 600)
}

// The recommender replaces the status.
func TestVPADecode_InvalidStatusIsEmpty(t *testing.T) {
	for _, status := range []string{
		`{"recommendation":{"containerRecommendations":[{"containerName":"a","target":{"cpu":"1e-2147483647"}}]}}`,
		`{"recommendation":{"containerRecommendations":[{"containerName":"a","lowerBound":{"cpu":"1e.5"}}]}}`,
		`{"conditions":[{"type":"X","lastTransitionTime":"2026-01-02t12:00:00z"}]}`,
	} {
		var v VerticalPodAutoscaler
		require.NoError(t, json.Unmarshal([]byte(`{"spec":{"targetRef":{"name":"web"}},"status":`+status+`}`), &v))
		require.Equal(t, VerticalPodAutoscaler{Spec: VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{Name: "web"}}}, v)
	}
}

// Invalid fields get the value that disables the VPA.
func TestVPADecode_InvalidSpecDisablesVPA(t *testing.T) {
	var v VerticalPodAutoscaler
	require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"name":"v"},"spec":{"targetRef":7,"updatePolicy":8,"recommenders":9}}`), &v))
	require.Contains(t, v.Annotations[UnreadableAnnotation], "spec.targetRef: ")
	require.Nil(t, v.Spec.TargetRef)
	require.Equal(t, UpdateModeOff, *v.Spec.UpdatePolicy.UpdateMode)
	require.Len(t, v.Spec.Recommenders, 1)
	require.Empty(t, v.Spec.Recommenders[0].Name)
	require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"name":"v"},"spec":7}`), &v))
	require.Contains(t, v.Annotations[UnreadableAnnotation], "spec: ")
	require.Equal(t, "v", v.Name)
	require.Error(t, json.Unmarshal([]byte(`{"metadata":7,"spec":7}`), &v), "nobody knows which one it is")
}

func TestVPADecode_AcceptsTypicalQuantities(t *testing.T) {
	for _, quantity := range []string{"250m", "1e3", "1E18", "1e-3", "9223372036854775807", "100T", "0.25", "+1.5"} {
		var v VerticalPodAutoscaler
		text := `{"metadata":{"name":"7e123456","annotations":{"note":"\u003c1e99999\u003e"}},"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"7e1234567","maxAllowed":{"cpu":"` + quantity + `"}}]}}}`
		require.NoError(t, json.Unmarshal([]byte(text), &v), quantity)
		require.Equal(t, map[string]string{"note": "<1e99999>"}, v.Annotations)
		require.False(t, v.Spec.ResourcePolicy.ContainerPolicies[0].MaxAllowed.Cpu().IsZero(), quantity)
	}
}

func TestDecode_ErrorsNameTypeOfVPA(t *testing.T) {
	var v VerticalPodAutoscaler
	require.ErrorContains(t, Decode([]byte(`{"spec":7}`), &v), "Go struct field VerticalPodAutoscaler.spec of type")
}

func TestCheckpointDecode_InvalidTimeKeepsOtherCheckpoints(t *testing.T) {
	var list VerticalPodAutoscalerCheckpointList
	require.NoError(t, json.Unmarshal([]byte(`{"items":[
		{"metadata":{"name":"bad"},"spec":{"vpaObjectName":"web","containerName":"a"},"status":{"version":"v3","totalSamplesCount":5,"firstSampleStart":"2026-01-02t12:00:00z"}},
		{"metadata":{"name":"good"},"status":{"version":"v3"}}]}`), &list))
	require.Equal(t, "web", list.Items[0].Spec.VPAObjectName)
	require.Contains(t, list.Items[0].Status.Version, "unreadable: parsing time")
	require.Zero(t, list.Items[0].Status.TotalSamplesCount)
	require.Equal(t, "v3", list.Items[1].Status.Version)
}
