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
	for _, c := range []struct {
		status, condition, since int64
		outdated                 bool
	}{
		{3, 0, 4, true},
		{4, 0, 4, false},
		{3, 0, 3, false}, // only other parts of the spec changed
		{5, 0, 5, false},
		{0, 0, 5, false}, // the recommender sets no generation
		{0, 3, 4, true},
		{3, 4, 4, false},
		{4, 3, 4, false},
	} {
		require.Equal(t, c.outdated, IsOutdated(of(c.status, c.condition), c.since), "%+v", c)
	}
	vpa := of(3, 0)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{}
	require.Nil(t, WithoutRecommendation(vpa).Status.Recommendation)
	require.NotNil(t, vpa.Status.Recommendation)
	require.EqualValues(t, 3, WithoutRecommendation(vpa).Status.ObservedGeneration)
}
