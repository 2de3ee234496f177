package convert

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

func withHistory(message string, containers ...string) *vpav1.VerticalPodAutoscaler {
	vpa := &vpav1.VerticalPodAutoscaler{}
	vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: SufficientHistory, Message: message}}
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{}
	for _, name := range containers {
		vpa.Status.Recommendation.ContainerRecommendations = append(vpa.Status.Recommendation.ContainerRecommendations,
			vpav1.RecommendedContainerResources{ContainerName: name})
	}
	return vpa
}

func TestHistory_ParsesHistoryMessage(t *testing.T) {
	spans := []time.Duration{0, 26 * time.Second, time.Hour, 7 * time.Hour, day, 3 * day, 8 * day, 30 * day}
	for _, a := range spans {
		for _, b := range spans {
			containers := []ContainerHistory{{"all", a}, {"app", b}, {"others", a}}
			for _, before := range []string{"", "container x has 5 of 48 points; "} {
				vpa := withHistory(before + HistoryMessage(containers))
				for _, c := range containers {
					span, known := History(vpa, c.Name)
					require.True(t, known)
					require.Equal(t, HistorySteps[HistoryStep(c.Span)].From, span, "%s: %s", c.Name, vpa.Status.Conditions[0].Message)
				}
			}
		}
	}
}

func TestHasShortHistory_PerContainer(t *testing.T) {
	vpa := withHistory(HistoryMessage([]ContainerHistory{{"app", 9 * 24 * time.Hour}, {"sidecar", time.Minute}}), "app", "sidecar")
	for _, tc := range []struct {
		name         string
		required     time.Duration
		app, sidecar bool
	}{
		{name: "nothing required", required: 0},
		{name: "an hour", required: time.Hour, sidecar: true},
		{name: "more than the longest step", required: 1000 * time.Hour, sidecar: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.app, HasShortHistory(vpa, "app", tc.required))
			require.Equal(t, tc.sidecar, HasShortHistory(vpa, "sidecar", tc.required))
			require.Equal(t, tc.app || tc.sidecar, AnyHasShortHistory(vpa, tc.required))
		})
	}
	require.False(t, AnyHasShortHistory(withHistory("", "app"), time.Hour), "another recommender reports no history")
}
