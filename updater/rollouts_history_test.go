package updater

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/reason"
)

func TestRollout_RequiresHistory(t *testing.T) {
	for _, tc := range []struct {
		name       string
		span       time.Duration
		minHistory *metav1.Duration
		changed    bool
	}{
		{"first sample", 26 * time.Second, nil, false},
		{"an hour", time.Hour, nil, true},
		{"setting not reached", 7 * time.Hour, &metav1.Duration{Duration: 24 * time.Hour}, false},
		{"nothing required", 0, &metav1.Duration{}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 2, autoPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MinHistory = tc.minHistory }))
			r.setHistorySpan(tc.span)
			if tc.changed {
				require.Len(t, r.at(0), 1)
				return
			}
			require.Empty(t, r.at(0))
			require.NotZero(t, r.skipped(string(reason.ShortHistory)))
			r.setHistorySpan(9 * 24 * time.Hour)
			require.Len(t, r.at(time.Minute), 1)
		})
	}
}

// setHistorySpan sets the span of usage behind the recommendation.
func (r *rolling) setHistorySpan(span time.Duration) {
	r.t.Helper()
	vpas := r.vpa.AutoscalingV1().VerticalPodAutoscalers("shop")
	vpa, err := vpas.Get(r.t.Context(), "deployment-web", metav1.GetOptions{})
	require.NoError(r.t, err)
	vpa = vpa.DeepCopy()
	message := convert.HistoryMessage([]convert.ContainerHistory{{Name: vpa.Status.Recommendation.ContainerRecommendations[0].ContainerName, Span: span}})
	vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: convert.SufficientHistory, Message: message}}
	_, err = vpas.Update(r.t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(r.t, err)
	require.Eventually(r.t, func() bool {
		known, err := r.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister().VerticalPodAutoscalers("shop").Get("deployment-web")
		return err == nil && len(known.Status.Conditions) == 1 && known.Status.Conditions[0].Message == message
	}, time.Minute, time.Millisecond)
}
