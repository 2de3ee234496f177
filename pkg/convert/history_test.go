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

func TestHistory_ReadsWhatHistoryMessageWrites(t *testing.T) {
	spans := []time.Duration{0, 26 * time.Second, time.Hour, 7 * time.Hour, 24 * time.Hour, 3 * 24 * time.Hour, 8 * 24 * time.Hour, 30 * 24 * time.Hour}
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
		least        time.Duration
		app, sidecar bool
	}{
		{"nothing required", 0, false, false},
		{"an hour", time.Hour, false, true},
		{"more than any step", 1000 * time.Hour, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.app, HasShortHistory(vpa, "app", tc.least))
			require.Equal(t, tc.sidecar, HasShortHistory(vpa, "sidecar", tc.least))
			require.Equal(t, tc.app || tc.sidecar, HaveShortHistory(vpa, tc.least))
		})
	}
	require.False(t, HaveShortHistory(withHistory("", "app"), time.Hour), "another recommender reports no history")
}
