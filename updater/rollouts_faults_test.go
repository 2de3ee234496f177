package updater

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
)

// Two of three zones fail: their nodes become unready and disappear with their pods. The change did
// not cause this.
func TestHarm_IgnoresLostZones(t *testing.T) {
	objects := append(deployment(6, nil), lowering(generatedVPA()), autoPolicy(everyRound), healthy("a"), healthy("b"), healthy("c"))
	for i, o := range objects[2:8] {
		o.(*corev1.Pod).Spec.NodeName = string("abc"[i%3])
	}
	r := roll(t, freeResizes(), objects...)
	require.Len(t, r.at(0), 6)
	nodes := r.kube.CoreV1().Nodes()
	known := r.caches.constraints.Core().V1().Nodes().Lister()
	unknown := healthy("a")
	unknown.Status.Conditions[0].Status = corev1.ConditionUnknown
	_, err := nodes.Update(t.Context(), unknown, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, nodes.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		a, err := known.Get("a")
		_, gone := known.Get("b")
		return err == nil && a.Status.Conditions[0].Status == corev1.ConditionUnknown && gone != nil
	}, time.Minute, time.Millisecond)
	for _, i := range []int{0, 1, 3, 4} {
		r.ready(fmt.Sprintf("web-1-%d", i), corev1.ConditionFalse, time.Minute)
	}
	r.judge(2 * time.Minute)
	require.Len(t, r.noted(), 6)
	r.change("web-1-0", func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon.Add(3 * time.Minute)}, []string{"test/kept"}
	})
	r.remove("web-1-1")
	r.judge(5 * time.Minute)
	r.at(6 * time.Minute)
	require.Zero(t, r.reverts())
	require.Equal(t, "50m 50m 50m 50m 50m", r.sizes())
	s := r.record()
	require.Equal(t, loadlinev1alpha1.RoundSuccess, s.Rounds[0].Outcome, "as the others did well")
	require.Zero(t, s.ConsecutiveReverts)
	require.Empty(t, s.Reverted)
}

// If the clock is set back during a cooldown, the cooldown lasts no longer than a new one. If it is
// set forward, one more round may start, which is observed until the clock is right again.
func TestCooldown_ToleratesClockChange(t *testing.T) {
	begun := func() *rolling {
		r := roll(t, freeResizes(), append(deployment(1, nil), lowering(generatedVPA()), autoPolicy(), healthy("n1"))...)
		require.Len(t, r.at(0), 1)
		r.judge(5 * time.Minute)
		require.Empty(t, r.at(6*time.Minute))
		require.Equal(t, noon.Add(66*time.Minute), r.record().CooldownUntil.UTC())
		r.recommend("30m", "30Mi")
		require.Empty(t, r.at(7*time.Minute))
		require.Equal(t, 1, r.skipped("CoolingDown"))
		return r
	}
	r := begun()
	for _, minute := range []int{-53, 0, 30, 65} {
		require.Empty(t, r.at(time.Duration(minute)*time.Minute), minute)
		require.Equal(t, 1, r.skipped("CoolingDown"), minute)
	}
	require.Len(t, r.at(66*time.Minute), 1)

	r = begun()
	require.Len(t, r.at(67*time.Minute), 1)
	for minute := 8; minute < 60; minute += 10 { // clock corrected
		r.judge(time.Duration(minute) * time.Minute)
		require.Empty(t, r.at(time.Duration(minute)*time.Minute))
	}
	require.Equal(t, "30m 30Mi", r.requests("web-1-0"))
	r.judge(72 * time.Minute)
	require.Empty(t, r.at(73*time.Minute))
	require.Zero(t, r.reverts())
	s := r.record()
	require.Len(t, s.Rounds, 2)
	require.Equal(t, loadlinev1alpha1.RoundSuccess, s.Rounds[0].Outcome)
}

func TestObservation_EndsOnce(t *testing.T) {
	for _, tc := range []struct {
		name    string
		happens func(r *rolling)
		after   time.Duration
		events  int
		outcome loadlinev1alpha1.RoundOutcome
	}{
		{name: "success", happens: func(*rolling) {}, after: 5 * time.Minute, events: 0, outcome: "Success"},
		{name: "infeasible resize", happens: func(r *rolling) { r.pending("web-1-0", corev1.PodReasonInfeasible) }, after: time.Minute,
			events: 2, outcome: "Failed"},
		{name: "failed resize", happens: func(r *rolling) { r.pending("web-1-0", corev1.PodReasonError) }, after: time.Hour, events: 2,
			outcome: "Failed"},
		{name: "harm", happens: func(r *rolling) { r.restarted("web-1-0", 2) }, after: time.Minute, events: 2, outcome: "Reverted"},
		{name: "changed by another client", happens: func(r *rolling) {
			r.change("web-1-0", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("70m", "70Mi") })
		}, after: time.Minute, events: 0, outcome: "Superseded"},
		{name: "observed too late", happens: func(r *rolling) { r.restarted("web-1-0", 2) }, after: 48 * time.Hour, events: 0,
			outcome: "Unobserved"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 2, autoPolicy())
			require.Equal(t, []string{"web-1-0"}, r.at(0))
			note := r.pod("web-1-0").Annotations
			tc.happens(r)
			r.drainEvents()
			r.judge(tc.after)
			require.Empty(t, r.noted())
			require.Len(t, r.drainEvents(), tc.events)
			s, resizes, reverts := r.record(), r.resizes(), r.reverts()
			require.Contains(t, []loadlinev1alpha1.RoundOutcome{s.Rounds[0].Outcome, s.Rounds[0].SoFar}, tc.outcome)
			r.change("web-1-0", func(p *corev1.Pod) { // as a stale cache may show it
				for _, key := range []string{convert.ResizedAtAnnotation, convert.OriginalAnnotation} {
					p.Annotations[key] = note[key]
				}
			})
			for range 3 {
				_, err := r.sync("web-1-0", tc.after+10*time.Second)
				require.NoError(t, err)
			}
			require.Empty(t, r.drainEvents())
			require.Equal(t, s, r.record())
			require.Equal(t, resizes, r.resizes())
			require.Equal(t, reverts, r.reverts())
		})
	}
}
