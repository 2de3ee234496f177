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
	for _, c := range []struct {
		mode vpav1.UpdateMode
		back bool
	}{
		{vpav1.UpdateModeInPlaceOrRecreate, true},
		{vpav1.UpdateModeRecreate, true},
		{vpav1.UpdateModeOff, false},
		{vpav1.UpdateModeInitial, false},
	} {
		r := newRolling(t, 3, autoPolicy())
		require.Equal(t, []string{"web-1-0"}, r.at(0))
		before := r.record()
		r.createVPA(loweringVPA(c.mode))
		r.restarted("web-1-0", 2)
		require.Empty(t, r.at(time.Minute), c.mode)
		r.judge(2 * time.Minute)
		require.Empty(t, r.noted(), c.mode)
		require.Empty(t, r.evictions(), c.mode)
		require.Equal(t, 1, r.records(), c.mode)
		s := r.record()
		if c.back {
			require.Equal(t, "100m 100m 100m", r.sizes(), c.mode)
			require.EqualValues(t, 1, r.value("loadline_updater_reverts_total", "vpa_name", "web-vpa"), c.mode)
			require.Equal(t, loadlinev1alpha1.RoundReverted, s.Rounds[0].Outcome, c.mode)
			continue
		}
		require.Equal(t, "50m 100m 100m", r.sizes(), c.mode)
		require.Equal(t, before, s, c.mode)
		for _, after := range []time.Duration{10 * time.Minute, 26 * time.Hour} {
			require.Empty(t, r.at(after), c.mode)
		}
		require.Equal(t, before, r.record(), "%s: nobody asked for its end", c.mode)

		require.NoError(t, r.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Delete(t.Context(), "web-vpa", metav1.DeleteOptions{}))
		r.awaitVPA("web-vpa", false)
		r.at(26*time.Hour + time.Minute)
		s = r.record()
		require.Zero(t, s.ConsecutiveReverts, c.mode)
		require.NotEmpty(t, s.Rounds[len(s.Rounds)-1].Outcome, "%s: the round that nobody looked after has ended", c.mode)
	}
}
