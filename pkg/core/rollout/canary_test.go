package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestPod_Eligible(t *testing.T) {
	for _, tc := range []struct {
		name string
		pod  Pod
		want bool
	}{
		{name: "running", pod: Pod{Running: true}, want: true},
		{name: "pending"},
		{name: "terminating", pod: Pod{Running: true, Terminating: true}},
		{name: "resize in progress", pod: Pod{Running: true, Resizing: true}},
		{name: "deferred resize", pod: Pod{Running: true, Deferred: true}},
		{name: "infeasible resize", pod: Pod{Running: true, Infeasible: true}, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, tc.pod.Eligible())
		})
	}
}

func members(s State) (uids []string) {
	for _, m := range s.Members {
		uids = append(uids, m.UID)
	}
	return uids
}

// canary returns a workload with pods p0, p1, ... and the state of a canary that has begun.
func canary(t *testing.T, pods, share int) (Workload, Settings, State) {
	t.Helper()
	w, set := deployment(fleet.Canary, pods), unlimited()
	set.Percentage = share
	s := Hold(State{}, w, set, noon).State
	require.Equal(t, PhaseCanary, s.Phase)
	return w, set, s
}

func TestCanary_KeepsMembers(t *testing.T) {
	w, set, s := canary(t, 10, 30)
	require.Equal(t, []string{"p0", "p1", "p2"}, members(s))
	s = change(s, &w.Pods[0], noon)
	w.Pods[1].Deferred, w.Pods[2].Due = true, false // pending, and already resized
	for i := range 90 {                             // many new pods
		w.Pods = append(w.Pods, Pod{UID: fmt.Sprint("new", i), Name: fmt.Sprint("a", i), Running: true, Due: true})
	}
	s = Hold(s, w, set, noon.Add(time.Minute)).State
	require.Equal(t, []string{"p0", "p1", "p2"}, members(s))
	w.Pods[1].Terminating = true
	s = Hold(s, w, set, noon.Add(time.Minute)).State
	require.Equal(t, []string{"p0", "p2", "new0"}, members(s), "one that is gone is replaced")
	all := w.Pods
	w.Pods = w.Pods[:4] // p0, p2 and p3 remain
	s = Hold(s, w, set, noon.Add(time.Minute)).State
	require.Equal(t, []string{"p0", "p2", "new0"}, members(s), "p3 would be more than its share")
	w.Pods = slices.Concat(all[:4], all[20:30])
	s = Hold(s, w, set, noon.Add(time.Minute)).State
	require.Equal(t, []string{"p0", "p2", "new10"}, members(s))
}

func TestCanary_ReplacesMembersWithRunningPods(t *testing.T) {
	w, set, s := canary(t, 10, 20)
	for i := range w.Pods {
		w.Pods[i].Resizing = true
	}
	w.Pods[0].UID = "q0"
	s = Hold(s, w, set, noon.Add(time.Minute)).State
	require.Equal(t, []string{"p1", "p0"}, members(s), "there is none yet")
	for i := range 8 {
		w.Pods[i].Terminating = i != 1
	}
	w.Pods[9].Resizing = false
	require.Equal(t, []string{"p1", "p0"}, members(Hold(s, w, set, noon.Add(time.Minute)).State), "two members would be more than their share of three")
	for i := range 8 {
		w.Pods[i].Terminating = false
	}
	w.Pods[9].Resizing, w.Pods[0].Resizing = true, false
	require.Equal(t, []string{"p1", "q0"}, members(Hold(s, w, set, noon.Add(time.Minute)).State))
}

func TestCanary_ChoosesDuePods(t *testing.T) {
	w, set := deployment(fleet.Canary, 4), unlimited()
	set.Percentage = 50
	w.Pods[0].Due, w.Pods[1].Due, w.Pods[2].Due = false, false, false
	require.Equal(t, []string{"p3", "p0"}, members(Hold(State{}, w, set, noon).State))
	w.Pods[3].Due = false
	require.Empty(t, Hold(State{}, w, set, noon).State.Members, "nothing is to be changed")
}

func TestCanary_StatefulSetStartsAtHighestOrdinal(t *testing.T) {
	w, set := deployment(fleet.Canary, 12), unlimited()
	for i := range w.Pods {
		w.Pods[i].Name = fmt.Sprintf("db-%d", i)
	}
	w.Ordinals, set.Percentage = true, 25
	require.Equal(t, []string{"p11", "p10", "p9"}, members(Hold(State{}, w, set, noon).State))
	w.Ordinals = false
	require.Equal(t, []string{"p0", "p1", "p10"}, members(Hold(State{}, w, set, noon).State))
}

func TestCanary_KeepsMembersAtZeroReplicas(t *testing.T) {
	_, set, s := canary(t, 10, 30)
	s = Hold(s, Workload{Mode: fleet.Canary}, set, noon.Add(time.Minute)).State
	require.Len(t, s.Members, 3)
	w := deployment(fleet.Canary, 1)
	w.Pods[0].UID = "q0"
	h := Hold(s, w, set, noon.Add(2*time.Minute))
	require.Equal(t, []string{"q0", "p0", "p1"}, members(h.State))
	require.Equal(t, []string{"p0"}, releasedPods(w, h))
}

func TestCanary_Promotion(t *testing.T) {
	later := noon.Add(DefaultPeriod)
	for name, c := range map[string]struct {
		does func(*Workload, *Settings, State) State // two members, both observed since noon
		want Obstacle
	}{
		"both did well":   {endBoth, ""},
		"one is observed": {func(w *Workload, _ *Settings, s State) State { return end(s, &w.Pods[0], Success, "", noon, later) }, RoundOpen},
		"one did well before, and waits for its node": {func(w *Workload, set *Settings, s State) State {
			s = Hold(endBoth(w, set, s), *w, *set, later).State
			s.Phase, s.CanarySince, s.Members = PhaseCanary, noon, []Member{{"p0", Success}, {"p1", Success}}
			w.Pods[1].ObservedSince, w.Pods[1].Deferred = noon.Add(time.Minute), true
			return s
		}, MemberNotSuccessful},
		"nobody knows since when": {func(w *Workload, set *Settings, s State) State {
			s = Hold(endBoth(w, set, s), *w, *set, noon).State
			s.CanarySince = time.Time{}
			return s
		}, NotObserved},
		"one was not judged in time": {func(w *Workload, _ *Settings, s State) State {
			return end(end(s, &w.Pods[0], Success, "", noon, later), &w.Pods[1], Unobserved, "", noon, later)
		}, MemberNotSuccessful},
		"one has gone after the round": {func(w *Workload, set *Settings, s State) State {
			s = end(end(s, &w.Pods[0], Success, "", noon, later), &w.Pods[1], Unobserved, "", noon, later)
			s = Hold(s, *w, *set, later).State
			w.Pods = append(w.Pods[:1], w.Pods[2:]...)
			return s
		}, ""},
		"both were reverted": {func(w *Workload, _ *Settings, s State) State {
			return end(end(s, &w.Pods[0], Success, "", noon, later), &w.Pods[1], Reverted, OOMKill, noon, later)
		}, MemberNotSuccessful},
		"the period is not over": {func(w *Workload, set *Settings, s State) State { set.CanaryPeriod++; return endBoth(w, set, s) }, PeriodNotOver},
		"a person decides":       {func(w *Workload, set *Settings, s State) State { set.AutoPromote = false; return endBoth(w, set, s) }, AutoPromoteOff},
		"nodes do not grant them": {func(w *Workload, _ *Settings, s State) State {
			w.Pods[0].Deferred, w.Pods[1].Infeasible = true, true
			return s
		}, MembersBlocked},
		"one had what it gets": {func(w *Workload, _ *Settings, s State) State {
			w.Pods[1].ObservedSince = time.Time{}
			return end(s, &w.Pods[0], Success, "", noon, later)
		}, ""},
		"all had what they get": {func(w *Workload, _ *Settings, s State) State {
			w.Pods[0].ObservedSince, w.Pods[1].ObservedSince = time.Time{}, time.Time{}
			return s
		}, NotObserved},
	} {
		t.Run(name, func(t *testing.T) {
			w, set, s := canary(t, 4, 50)
			s = change(change(s, &w.Pods[0], noon), &w.Pods[1], noon)
			s = c.does(&w, &set, s)
			h := Hold(s, w, set, later)
			require.Equal(t, c.want, h.Canary)
			want := PhaseFullRollout
			if c.want != "" {
				want = PhaseCanary
			}
			require.Equal(t, want, h.State.Phase)
			if h.State.Phase == PhaseFullRollout {
				require.Equal(t, reason.CoolingDown, h.Pods[len(h.Pods)-1].Reason, "the rest follows after the cooldown")
				w.Pods[0].Due = true
				require.Contains(t, releasedPods(w, Hold(h.State, w, set, later.Add(time.Hour))), "p3")
			}
		})
	}
}

func endBoth(w *Workload, set *Settings, s State) State {
	later := noon.Add(DefaultPeriod)
	return end(end(s, &w.Pods[0], Success, "", noon, later), &w.Pods[1], Success, "", noon, later)
}

func TestCanary_PeriodSpansAllRounds(t *testing.T) {
	w, set, s := canary(t, 4, 25)
	set.CanaryPeriod, set.Cooldown = 3*time.Hour, time.Hour
	now := noon
	for range 2 { // its target changes every other hour
		w.Pods[0].Due = true
		s = change(Hold(s, w, set, now).State, &w.Pods[0], now)
		s = Hold(end(s, &w.Pods[0], Success, "", now, now), w, set, now).State
		now = now.Add(2 * time.Hour)
	}
	require.Equal(t, noon.Add(2*time.Hour), s.Rounds[0].Time)
	require.Equal(t, PeriodNotOver, Hold(s, w, set, noon.Add(3*time.Hour-1)).Canary)
	require.Equal(t, PhaseFullRollout, Hold(s, w, set, noon.Add(3*time.Hour)).State.Phase)

	w.Pods[0].Due = true
	reverted := change(Hold(s, w, set, noon.Add(3*time.Hour-1)).State, &w.Pods[0], noon.Add(3*time.Hour-1))
	reverted = end(reverted, &w.Pods[0], Reverted, OOMKill, noon.Add(3*time.Hour-1), noon.Add(3*time.Hour))
	require.Zero(t, reverted.CanarySince, "it begins anew")
}

func TestCanary_PolicyChangeRestartsPeriod(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*Workload, *Settings)
	}{
		{name: "another hash", edit: func(_ *Workload, set *Settings) { set.Hash = "other" }},
		{name: "another mode", edit: func(w *Workload, set *Settings) { w.Mode, set.Hash = fleet.Canary, "other" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, set, s := canary(t, 4, 25)
			if set.CanaryPeriod = 3 * time.Hour; tc.name == "another mode" {
				w.Mode = fleet.Auto
				s = Hold(State{}, w, set, noon).State
			}
			s = change(s, &w.Pods[0], noon)
			for i := range 3 { // the record does not have the changes yet
				w.Pods[i].ObservedSince = noon
			}
			tc.edit(&w, &set)
			edited := noon.Add(50 * time.Minute)
			s = Hold(s, w, set, edited).State
			for i := range w.Pods {
				s = end(s, &w.Pods[i], Success, "", noon, edited)
				w.Pods[i].Due = false
			}
			s = Hold(s, w, set, edited).State
			require.Equal(t, Success, s.Rounds[0].Outcome)
			require.Equal(t, PeriodNotOver, Hold(s, w, set, edited.Add(3*time.Hour-1)).Canary)
			require.Equal(t, PhaseFullRollout, Hold(s, w, set, edited.Add(3*time.Hour)).State.Phase)
		})
	}
}

// A process can end before it removes the change annotation from the pod. The next process detects
// the harm.
func TestCanary_LateRevertClearsMemberSuccess(t *testing.T) {
	w, _, s := canary(t, 4, 50)
	s = change(change(s, &w.Pods[0], noon), &w.Pods[1], noon)
	s = end(s, &w.Pods[1], Reverted, Restart, noon, noon.Add(time.Minute))
	s = end(s, &w.Pods[0], Success, "", noon, noon.Add(DefaultPeriod))
	require.Equal(t, []Member{{"p0", Success}, {UID: "p1"}}, s.Members)
	s = end(s, &w.Pods[0], Reverted, Restart, noon, noon.Add(DefaultPeriod+time.Minute))
	require.Equal(t, []Member{{UID: "p0"}, {UID: "p1"}}, s.Members)
	require.Equal(t, 1, s.Reverts())
}

func TestHold_ReportsBlockedResizes(t *testing.T) {
	for reason, nodes := range map[string][2]string{"PodsDeferred": {"d", "d"}, "PodsInfeasible": {"i", "i"}, "PodsDeferredAndInfeasible": {"i", "d"}, "": {"d", ""}} {
		w, set, s := canary(t, 4, 50)
		for i, state := range nodes {
			w.Pods[i].Deferred, w.Pods[i].Infeasible = state == "d", state == "i"
		}
		require.Equal(t, reason, Hold(s, w, set, noon).State.ResizeBlocked.Reason)
	}
	w := deployment(fleet.Auto, 2)
	w.Pods[0].Deferred, w.Pods[1].Due = true, false
	require.Equal(t, "PodsDeferred", Hold(State{}, w, settings(), noon).State.ResizeBlocked.Reason)
}

func fullRollout(t *testing.T) (Workload, Settings, State) {
	t.Helper()
	w, set, s := canary(t, 4, 50)
	s = endBoth(&w, &set, change(change(s, &w.Pods[0], noon), &w.Pods[1], noon))
	s = Hold(s, w, set, noon.Add(DefaultPeriod)).State
	require.Equal(t, PhaseFullRollout, s.Phase)
	require.Empty(t, s.Members)
	require.Zero(t, s.CanarySince)
	return w, set, s
}

func TestFullRollout_ReturnsToCanary(t *testing.T) {
	evening := noon.Add(8 * time.Hour)
	for name, c := range map[string]struct {
		does func(*Workload, *Settings)
		want Phase
	}{
		"nothing":                    {func(*Workload, *Settings) {}, PhaseFullRollout},
		"another hash":               {func(_ *Workload, s *Settings) { s.Hash = "other" }, PhaseCanary},
		"a pause":                    {func(w *Workload, _ *Settings) { w.StopReason, w.Mode = reason.PolicyPaused, fleet.Recommend }, PhaseFullRollout},
		"a policy that is not known": {func(w *Workload, s *Settings) { w.StopReason, s.Hash = reason.PolicyUnknown, "" }, PhaseFullRollout},
		"another schedule":           {func(_ *Workload, s *Settings) { s.Schedule = &Schedule{} }, PhaseFullRollout},
		"another target":             {func(w *Workload, _ *Settings) { w.Target = []policy.Container{requests("app", 900, 900)} }, PhaseFullRollout},
		"mode Auto, which has none":  {func(w *Workload, s *Settings) { w.Mode, s.Hash = fleet.Auto, "other" }, ""},
		"edited while it is paused":  {func(w *Workload, s *Settings) { w.StopReason, s.Hash = reason.PolicyPaused, "other" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, set, s := fullRollout(t)
			c.does(&w, &set)
			s = Hold(s, w, set, evening).State
			require.Equal(t, c.want, s.Phase)
		})
	}
	w, set, s := fullRollout(t)
	w.StopReason, set.Hash = reason.PolicyPaused, "other"
	s = Hold(s, w, set, evening).State
	w.StopReason = ""
	require.Equal(t, []string{"p2", "p3"}, members(Hold(s, w, set, evening).State), "chosen anew, of those that are due")
}

func TestFullRollout_RevertKeepsPhase(t *testing.T) {
	w, set, s := fullRollout(t)
	evening := noon.Add(8 * time.Hour)
	s = Hold(s, w, set, evening).State
	s = end(change(s, &w.Pods[2], evening), &w.Pods[2], Reverted, Throttle, evening, evening)
	h := Hold(s, w, set, evening.Add(time.Hour))
	require.Equal(t, PhaseFullRollout, h.State.Phase)
	require.Equal(t, reason.CoolingDown, h.Pods[3].Reason)
}

func TestCanary_HaltsAfterRepeatedReverts(t *testing.T) {
	w, set, s := canary(t, 10, 10)
	set.Cooldown = 0
	reverted := func() {
		s = Hold(s, w, set, noon).State
		s = s.RecordChange(lowerCPU(noon)).EndObservation(ObservationEnd{UID: "p0", Change: lowerCPU(noon), Outcome: Reverted}, set, noon)
	}
	for round := range 3 {
		require.Zero(t, s.Degraded, round)
		reverted()
	}
	require.Equal(t, Condition{"HighRevertRate", noon}, s.Degraded)
	require.Equal(t, PhaseCanary, s.Phase, "once")
	reverted()
	require.Equal(t, PhaseHalted, s.Phase)
	h := Hold(s, w, set, noon.Add(240*time.Hour))
	s = h.State
	require.Equal(t, PhaseHalted, s.Phase)
	require.Equal(t, reason.Halted, h.Pods[0].Reason)

	same := w
	same.Target = []policy.Container{requests("app", 219, 100)}
	s = Hold(s, same, set, noon).State
	require.Equal(t, PhaseHalted, s.Phase)
	cooling, long := s, set
	cooling.CooldownUntil, long.Cooldown = noon.Add(time.Hour), time.Hour
	require.Zero(t, Hold(cooling, same, long, noon).Next, "nobody knows when")
	same.Target = []policy.Container{requests("app", 220, 100)}
	h = Hold(s, same, set, noon)
	require.Equal(t, []string{"p0"}, releasedPods(same, h), "another target")
	require.Empty(t, h.State.HaltedTarget)
	set.Hash = "other"
	require.Equal(t, []string{"p0"}, releasedPods(w, Hold(s, w, set, noon)), "another policy")
}

func TestTargetDiffers(t *testing.T) {
	before := []policy.Container{requests("app", 200, -1), requests("gone", 1, 1)}
	require.False(t, targetDiffers(before, []policy.Container{requests("app", 181, 999), requests("new", 5, 5)}))
	require.True(t, targetDiffers(before, []policy.Container{requests("app", 180, 999)}))
	require.False(t, targetDiffers([]policy.Container{{Name: "app", Requests: resources.NewList(0, 0)}}, []policy.Container{requests("app", 0, 0)}))
	require.True(t, targetDiffers([]policy.Container{{Name: "app", Requests: resources.NewList(0, 0)}}, []policy.Container{requests("app", 1, 0)}))
}
