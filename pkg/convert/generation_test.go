package convert

import (
	"testing"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

func TestIsOutdated_RecommendationForEarlierTarget(t *testing.T) {
	of := func(status, condition int64) *vpav1.VerticalPodAutoscaler {
		v := &vpav1.VerticalPodAutoscaler{}
		v.Generation, v.Status.ObservedGeneration = 5, status
		v.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{
			{Type: vpav1.ConfigUnsupported, ObservedGeneration: 5}, {Type: vpav1.RecommendationProvided, ObservedGeneration: condition}}
		return v
	}
	for _, tc := range []struct {
		name                     string
		status, condition, since int64
		outdated                 bool
	}{
		{name: "status before the target change", status: 3, condition: 0, since: 4, outdated: true},
		{name: "status of the target change", status: 4, condition: 0, since: 4},
		{name: "change of other parts of the spec", status: 3, condition: 0, since: 3},
		{name: "status of the current generation", status: 5, condition: 0, since: 5},
		{name: "recommender without generations", status: 0, condition: 0, since: 5},
		{name: "condition before the target change", status: 0, condition: 3, since: 4, outdated: true},
		{name: "newer condition than status", status: 3, condition: 4, since: 4},
		{name: "newer status than condition", status: 4, condition: 3, since: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.outdated, IsOutdated(of(tc.status, tc.condition), tc.since))
		})
	}
	vpa := of(3, 0)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{}
	require.Nil(t, WithoutRecommendation(vpa).Status.Recommendation)
	require.NotNil(t, vpa.Status.Recommendation)
	require.EqualValues(t, 3, WithoutRecommendation(vpa).Status.ObservedGeneration)
}
