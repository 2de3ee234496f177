package updater

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

func (r *rolling) createVPA(vpa *vpav1.VerticalPodAutoscaler) {
	r.t.Helper()
	_, err := r.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Create(r.t.Context(), vpa, metav1.CreateOptions{})
	require.NoError(r.t, err)
	r.awaitVPA(vpa.Name, true)
}

func (r *rolling) awaitVPA(name string, there bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		_, err := r.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister().VerticalPodAutoscalers("shop").Get(name)
		return (err == nil) == there
	}, time.Minute, time.Millisecond)
}

// The generated VPA has changed a pod that is still observed. There is one record with one round.
func TestUserVPA_TakesOverDuringRound(t *testing.T) {
	r := newRolling(t, 3, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	before := r.record()
	mine := loweringVPA(vpav1.UpdateModeInPlaceOrRecreate)
	one := &mine.Status.Recommendation.ContainerRecommendations[0]
	one.LowerBound, one.Target, one.UpperBound = list("70m", "70Mi"), list("70m", "70Mi"), list("70m", "70Mi")
	r.createVPA(mine)
	require.Empty(t, r.at(time.Minute))
	require.Equal(t, 3, r.skipped("UnderObservation"))
	require.Equal(t, before, r.record(), "it stays")
	require.Equal(t, []string{"web-1-0"}, r.noted())

	r.judge(5 * time.Minute)
	require.Empty(t, r.noted())
	require.Equal(t, []string{"web-1-0"}, r.at(6*time.Minute))
	require.Equal(t, "70m 100m 100m", r.sizes(), "as the VPA of the person says")
	for minute := 11; minute < 30; minute += 6 {
		r.judge(time.Duration(minute) * time.Minute)
		r.at(time.Duration(minute+1) * time.Minute)
	}
	require.Equal(t, "70m 70m 70m", r.sizes())
	require.Equal(t, 1, r.records())
	s := r.record()
	require.Len(t, s.Rounds, 1)
	require.Equal(t, loadlinev1alpha1.RoundSuccess, s.Rounds[0].Outcome)
	require.EqualValues(t, 4, s.Rounds[0].Pods)
}

// A mode that allows no changes of running pods prevents the revert.
func TestRevert_AfterUserVPATakesOver(t *testing.T) {
	for _, tc := range []struct {
		name string
		mode vpav1.UpdateMode
		back bool
	}{
		{name: "InPlaceOrRecreate", mode: vpav1.UpdateModeInPlaceOrRecreate, back: true},
		{name: "Recreate", mode: vpav1.UpdateModeRecreate, back: true},
		{name: "Off", mode: vpav1.UpdateModeOff, back: false},
		{name: "Initial", mode: vpav1.UpdateModeInitial, back: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 3, autoPolicy())
			require.Equal(t, []string{"web-1-0"}, r.at(0))
			before := r.record()
			r.createVPA(loweringVPA(tc.mode))
			r.restarted("web-1-0", 2)
			require.Empty(t, r.at(time.Minute))
			r.judge(2 * time.Minute)
			require.Empty(t, r.noted())
			require.Empty(t, r.evictions())
			require.Equal(t, 1, r.records())
			s := r.record()
			if tc.back {
				require.Equal(t, "100m 100m 100m", r.sizes())
				require.EqualValues(t, 1, r.value("loadline_updater_reverts_total", "vpa_name", "web-vpa"))
				require.Equal(t, loadlinev1alpha1.RoundReverted, s.Rounds[0].Outcome)
				return
			}
			require.Equal(t, "50m 100m 100m", r.sizes())
			require.Equal(t, before, s)
			for _, after := range []time.Duration{10 * time.Minute, 26 * time.Hour} {
				require.Empty(t, r.at(after))
			}
			require.Equal(t, before, r.record(), "its end is not requested")

			require.NoError(t, r.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Delete(t.Context(), "web-vpa", metav1.DeleteOptions{}))
			r.awaitVPA("web-vpa", false)
			r.at(26*time.Hour + time.Minute)
			s = r.record()
			require.Zero(t, s.ConsecutiveReverts)
			require.NotEmpty(t, s.Rounds[len(s.Rounds)-1].Outcome, "the unattended round has ended")
		})
	}
}
