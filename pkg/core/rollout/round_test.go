package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// deployment has n ready pods p0, p1, ... that are due for a change.
func deployment(mode fleet.Mode, n int) Workload {
	w := Workload{Mode: mode, Target: []policy.Container{requests("app", 200, 100)}}
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		w.Pods = append(w.Pods, Pod{UID: name, Name: name, Running: true, Ready: true, Due: true, Node: Node{Known: true}})
	}
	return w
}

func settings() Settings {
	return Settings{Hash: "h", Percentage: 10, AutoPromote: true, CanaryPeriod: DefaultPeriod, Cooldown: DefaultCooldown, MaxConcurrent: DefaultMaxConcurrent}
}

func unlimited() Settings {
	s := settings()
	s.MaxConcurrent = 0
	return s
}

func releasedPods(w Workload, h HoldResult) (names []string) {
	for i, a := range h.Pods {
		if a.Free {
			names = append(names, w.Pods[i].Name)
		}
	}
	return names
}

func reasons(h HoldResult) (all []reason.Reason) {
	for _, a := range h.Pods {
		all = append(all, a.Reason)
	}
	return all
}

func lowerCPU(at time.Time) Change {
	return Change{At: at, Ready: true, Containers: []ContainerChange{{From: requests("app", 500, 100), To: requests("app", 200, -1)}}}
}

func change(s State, p *Pod, at time.Time) State {
	p.ObservedSince, p.Due = at, false
	return s.RecordChange(lowerCPU(at))
}

func end(s State, p *Pod, o Outcome, why Harm, changed, now time.Time) State {
	p.ObservedSince, p.Due = time.Time{}, o == Reverted || o == Failed
	return s.EndObservation(ObservationEnd{UID: p.UID, Change: lowerCPU(changed), Outcome: o, Harm: why}, settings(), now)
}

func TestHold_ModeSelectsPods(t *testing.T) {
	for name, c := range map[string]struct {
		mode  fleet.Mode
		pods  int
		share int
		want  []string
	}{
		"observe": {fleet.Observe, 3, 10, nil}, "recommend": {fleet.Recommend, 3, 10, nil},
		"one shot": {fleet.OneShot, 3, 10, []string{"p0"}}, "auto": {fleet.Auto, 3, 10, []string{"p0", "p1", "p2"}},
		"inherit":            {fleet.Inherit, 2, 10, []string{"p0", "p1"}},
		"canary, at least 1": {fleet.Canary, 3, 10, []string{"p0"}}, "canary, rounded down": {fleet.Canary, 5, 59, []string{"p0", "p1"}},
		"canary of all": {fleet.Canary, 3, 100, []string{"p0", "p1", "p2"}}, "no pods": {fleet.Canary, 0, 100, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, set := deployment(c.mode, c.pods), unlimited()
			set.Percentage = c.share
			require.Equal(t, c.want, releasedPods(w, Hold(State{}, w, set, noon)))
		})
	}
}

func TestHold_SkipReasons(t *testing.T) {
	night := &Schedule{Windows: []Window{window("22:00", "06:00")}, Zone: time.UTC}
	for name, c := range map[string]struct {
		does func(*Workload, *Settings, *State)
		want []reason.Reason // two pods in mode Auto with maxConcurrent 1
	}{
		"the first goes": {func(*Workload, *Settings, *State) {}, []reason.Reason{"", reason.UnderObservation}},
		"observing":      {func(w *Workload, _ *Settings, _ *State) { w.Mode = fleet.Observe }, []reason.Reason{reason.Observing, reason.Observing}},
		"recommending":   {func(w *Workload, _ *Settings, _ *State) { w.Mode = fleet.Recommend }, []reason.Reason{reason.RecommendOnly, reason.RecommendOnly}},
		"stopped":        {func(w *Workload, _ *Settings, _ *State) { w.StopReason = reason.PolicyPaused }, []reason.Reason{reason.PolicyPaused, reason.PolicyPaused}},
		"stopped, though observed": {func(w *Workload, _ *Settings, _ *State) {
			w.StopReason, w.Pods[0].ObservedSince = reason.PolicyPaused, noon
		}, []reason.Reason{reason.PolicyPaused, reason.PolicyPaused}},
		"outside of the window":    {func(_ *Workload, s *Settings, _ *State) { s.Schedule = night }, []reason.Reason{reason.OutsideWindow, reason.OutsideWindow}},
		"cooling down":             {func(_ *Workload, _ *Settings, s *State) { s.CooldownUntil = noon.Add(1) }, []reason.Reason{reason.CoolingDown, reason.CoolingDown}},
		"outside of the canary":    {func(w *Workload, _ *Settings, _ *State) { w.Mode = fleet.Canary }, []reason.Reason{"", reason.NotInCanary}},
		"halted":                   {halt, []reason.Reason{reason.Halted, reason.Halted}},
		"observed":                 {func(w *Workload, _ *Settings, _ *State) { w.Pods[0].ObservedSince = noon }, []reason.Reason{reason.UnderObservation, reason.UnderObservation}},
		"pending":                  {func(w *Workload, _ *Settings, _ *State) { w.Pods[0].Running = false }, []reason.Reason{reason.NotRunning, ""}},
		"terminating":              {func(w *Workload, _ *Settings, _ *State) { w.Pods[0].Terminating = true }, []reason.Reason{reason.NotRunning, ""}},
		"resizing":                 {func(w *Workload, _ *Settings, _ *State) { w.Pods[0].Resizing = true }, []reason.Reason{reason.WaitingForNode, ""}},
		"deferred":                 {func(w *Workload, _ *Settings, _ *State) { w.Pods[0].Deferred = true }, []reason.Reason{reason.Deferred, ""}},
		"infeasible is asked anew": {func(w *Workload, _ *Settings, _ *State) { w.Pods[0].Infeasible = true }, []reason.Reason{"", reason.UnderObservation}},
		"others go first":          {func(w *Workload, _ *Settings, _ *State) { w.Pods[0].SkippedAt = noon }, []reason.Reason{reason.UnderObservation, ""}},
		"rolling out":              {func(w *Workload, _ *Settings, _ *State) { w.RollingOut, w.Pods[1].Ready = true, false }, []reason.Reason{reason.RolloutInProgress, ""}},
		"nothing to change":        {func(w *Workload, _ *Settings, _ *State) { w.Pods[0].Due = false }, []reason.Reason{"", ""}},
		"kept": {func(w *Workload, _ *Settings, _ *State) {
			w.Pods[0].Due, w.Pods[0].OmittedReason = false, reason.RevertBackoff
		}, []reason.Reason{reason.RevertBackoff, ""}},
		"no pressure, no growth": {func(w *Workload, _ *Settings, _ *State) { w.Pods[0].Node = Node{} }, []reason.Reason{"", reason.UnderObservation}},
		"the node is not known": {func(w *Workload, _ *Settings, _ *State) {
			w.Pods[0].Node = Node{}
			w.Pods[0].Grows[resources.CPU] = true
		}, []reason.Reason{reason.NodeUnknown, ""}},
		"pressure": {func(w *Workload, _ *Settings, _ *State) {
			w.Pods[0].Node, w.Pods[0].Grows[resources.Memory] = Node{Known: true, MemoryPressure: true}, true
		}, []reason.Reason{reason.NodePressure, ""}},
		"the node is too small": {func(w *Workload, _ *Settings, _ *State) { small(w) }, []reason.Reason{reason.TooLargeForNode, ""}},
		"it fits exactly": {func(w *Workload, _ *Settings, _ *State) {
			small(w)
			w.Pods[0].TotalRequests = resources.NewList(1000, 1)
		}, []reason.Reason{"", reason.UnderObservation}},
		"too small, and it shrinks":        {func(w *Workload, _ *Settings, _ *State) { small(w); w.Pods[0].Grows = [resources.Kinds]bool{} }, []reason.Reason{"", reason.UnderObservation}},
		"too small, and it may be evicted": {func(w *Workload, s *Settings, _ *State) { small(w); s.Recreate = true }, []reason.Reason{"", reason.UnderObservation}},
		"a window that is closed for a person's VPA": {func(w *Workload, s *Settings, _ *State) {
			w.Mode, s.Schedule = fleet.Inherit, night
			w.Pods[1].Due = false
		}, []reason.Reason{reason.OutsideWindow, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			w, set, s := deployment(fleet.Auto, 2), settings(), State{Hash: "h"}
			c.does(&w, &set, &s)
			h := Hold(s, w, set, noon)
			require.Equal(t, c.want, reasons(h))
			for i, a := range h.Pods {
				require.Equal(t, a.Reason == "" && w.Pods[i].Due, a.Free)
			}
		})
	}
}

func small(w *Workload) {
	p := &w.Pods[0]
	p.Node.Size, p.TotalRequests, p.Grows[resources.CPU] = resources.List{}.With(resources.CPU, 1000), resources.NewList(1001, 1), true
}

func halt(w *Workload, _ *Settings, s *State) {
	w.Mode, s.Phase, s.Rounds = fleet.Canary, PhaseHalted, past("RRRR").Rounds
	s.HaltedTarget = w.Target
}

func TestHold_AllowsOOMResizeInActingModes(t *testing.T) {
	closed := settings()
	closed.Schedule = &Schedule{}
	for _, mode := range []fleet.Mode{fleet.Inherit, fleet.OneShot, fleet.Canary, fleet.Auto} {
		w := deployment(mode, 2)
		h := Hold(State{CooldownUntil: noon.Add(time.Minute)}, w, closed, noon)
		require.Empty(t, releasedPods(w, h))
		require.True(t, h.Pods[1].MemoryOnly, mode)
	}
	w := deployment(fleet.Auto, 2)
	w.Pods[0].Node = Node{Known: true, MemoryPressure: true}
	h := Hold(State{}, w, closed, noon)
	require.Equal(t, []bool{false, true}, []bool{h.Pods[0].MemoryOnly, h.Pods[1].MemoryOnly}, "not where the node lacks it")
	w.StopReason = reason.OptedOut
	require.False(t, Hold(State{}, w, settings(), noon).Pods[1].MemoryOnly)
	require.False(t, Hold(State{}, deployment(fleet.Recommend, 1), settings(), noon).Pods[0].MemoryOnly)
}

func TestHold_EvictionNeedsFullRollout(t *testing.T) {
	set := settings()
	set.Recreate = true
	for mode, want := range map[fleet.Mode]bool{fleet.OneShot: false, fleet.Canary: false, fleet.Auto: true, fleet.Recommend: false} {
		require.Equal(t, want, Hold(State{}, deployment(mode, 1), set, noon).Evict, mode)
	}
	require.True(t, Hold(State{Hash: "h", Phase: PhaseFullRollout}, deployment(fleet.Canary, 1), set, noon).Evict)
	require.False(t, Hold(State{}, deployment(fleet.Auto, 1), settings(), noon).Evict, "InPlaceOnly")
	paused := deployment(fleet.Auto, 1)
	paused.StopReason = reason.PolicyPaused
	require.False(t, Hold(State{}, paused, set, noon).Evict)
}

func TestRound_EndsWithoutDuePods(t *testing.T) {
	w, set := deployment(fleet.Auto, 2), settings()
	h := Hold(State{}, w, set, noon)
	require.Equal(t, []string{"p0"}, releasedPods(w, h))
	s := change(h.State, &w.Pods[0], noon.Add(time.Second))
	h = Hold(s, w, set, noon.Add(time.Minute))
	require.Empty(t, releasedPods(w, h), "one at a time")
	s = end(h.State, &w.Pods[0], Success, "", noon.Add(time.Second), noon.Add(6*time.Minute))
	h = Hold(s, w, set, noon.Add(6*time.Minute))
	require.Equal(t, []string{"p1"}, releasedPods(w, h), "the same round goes on")
	s = change(h.State, &w.Pods[1], noon.Add(6*time.Minute))
	s = end(s, &w.Pods[1], Success, "", noon.Add(6*time.Minute), noon.Add(12*time.Minute))
	require.Empty(t, s.Rounds[0].Outcome)
	h = Hold(s, w, set, noon.Add(12*time.Minute))
	require.Equal(t, []Round{{Time: noon.Add(time.Second), Last: noon.Add(6 * time.Minute), Pods: 2, Outcome: Success, Ended: noon.Add(12 * time.Minute),
		From: []policy.Container{requests("app", 500, 100)}, To: []policy.Container{requests("app", 200, -1)}}}, h.State.Rounds)
	require.Equal(t, noon.Add(72*time.Minute), h.State.CooldownUntil, "it begins at the end of the round")
	require.Equal(t, []policy.Container{requests("app", 200, -1)}, h.State.ProvenResources)

	w.Pods[0].Due = true
	h = Hold(h.State, w, set, noon.Add(72*time.Minute-1))
	require.Equal(t, []reason.Reason{reason.CoolingDown, ""}, reasons(h))
	require.Equal(t, noon.Add(72*time.Minute), h.Next)
	require.Equal(t, []string{"p0"}, releasedPods(w, Hold(h.State, w, set, noon.Add(72*time.Minute))))
}

func TestRound_StaysOpenWhilePolicyIsUnknown(t *testing.T) {
	w := deployment(fleet.Auto, 1)
	s := change(Hold(State{}, w, settings(), noon).State, &w.Pods[0], noon)
	s = end(s, &w.Pods[0], Success, "", noon, noon.Add(time.Minute))
	w.StopReason = reason.PolicyUnknown
	s = Hold(s, w, Settings{}, noon.Add(time.Minute)).State
	require.Empty(t, s.Rounds[0].Outcome, "its cooldown is not known")
	w.StopReason = reason.PolicyPaused
	s = Hold(s, w, settings(), noon.Add(time.Minute)).State
	require.Equal(t, noon.Add(61*time.Minute), s.CooldownUntil)
}

func TestRound_IsDroppedWithoutChanges(t *testing.T) {
	w, set := deployment(fleet.Auto, 2), settings()
	s := Hold(State{}, w, set, noon).State
	require.Len(t, s.Rounds, 1)
	s = Hold(s, w, set, noon.Add(3*time.Hour)).State
	require.Len(t, s.Rounds, 1, "the plan had no room so far")
	w.Pods[0].Due, w.Pods[1].Due = false, false
	s = Hold(s, w, set, noon.Add(4*time.Hour)).State
	require.Empty(t, s.Rounds)
	require.Zero(t, s.CooldownUntil)
}

// A process can end after it annotated a pod and before it sent the change, or before it stored the
// record.
func TestHold_CountsSentUnstoredChanges(t *testing.T) {
	w, set := deployment(fleet.Auto, 3), settings()
	stored := Hold(State{}, w, set, noon).State
	w.Pods[0].ObservedSince, w.Pods[1].ObservedSince = noon.Add(time.Second), noon.Add(2*time.Second)
	w.Pods[0].Unsent = true
	s := Hold(stored, w, set, noon.Add(time.Minute)).State
	require.Equal(t, 1, s.Rounds[0].Pods)
	require.True(t, s.HasAdvanced(stored), "the next iteration stores it")
	require.False(t, Hold(s, w, set, noon.Add(2*time.Minute)).State.HasAdvanced(s))

	w.Pods[1].ObservedSince = time.Time{}
	require.False(t, Hold(stored, w, set, noon.Add(time.Minute)).State.HasAdvanced(stored), "nothing was changed")
}

func TestRound_HundredPodsSequentially(t *testing.T) {
	w, set, s := deployment(fleet.Auto, 100), settings(), State{}
	var observed *Pod
	var since time.Time
	ended := 0
	for now := noon; now.Before(noon.Add(24 * time.Hour)); now = now.Add(time.Minute) {
		if observed != nil && now.Sub(since) >= DefaultPeriod {
			s, observed = end(s, observed, Success, "", since, now), nil
		}
		h := Hold(s, w, set, now)
		s = h.State
		for i := range h.Pods {
			if h.Pods[i].Free {
				require.Nil(t, observed, "one at a time")
				observed, since = &w.Pods[i], now
				s = change(s, observed, now)
			}
		}
		if s.round() == nil && len(s.Rounds) > ended {
			ended++
			require.Equal(t, now.Add(time.Hour), s.CooldownUntil, "one cooldown a round")
		}
	}
	require.Equal(t, 1, ended, "one target is one round, with one cooldown")
	pods := 0
	for _, r := range s.Rounds {
		require.Equal(t, Success, r.Outcome)
		pods += r.Pods
	}
	require.Equal(t, 100, pods)
}

func TestRound_StartsNoChangeAfterAnHour(t *testing.T) {
	w, set := deployment(fleet.Auto, 3), settings()
	set.MaxConcurrent = 2
	s := Hold(State{}, w, set, noon).State
	s = change(s, &w.Pods[0], noon)
	require.Equal(t, []string{"p1"}, releasedPods(w, Hold(s, w, set, noon.Add(time.Hour-1))))
	h := Hold(s, w, set, noon.Add(time.Hour))
	require.Empty(t, releasedPods(w, h))
	require.Empty(t, h.State.Rounds[0].Outcome, "what was begun is still judged in it")
	w.Pods[0].Terminating = true
	h = Hold(s, w, set, noon.Add(time.Hour))
	require.Equal(t, Superseded, h.State.Rounds[0].Outcome, "nobody waits for a pod that goes")
}

func TestRound_FindsUnstoredChanges(t *testing.T) {
	w, set := deployment(fleet.Auto, 3), unlimited()
	s := Hold(State{}, w, set, noon).State
	for i, seconds := range []time.Duration{2, 1, 3} {
		w.Pods[i].ObservedSince = noon.Add(seconds * time.Second)
	}
	s = Hold(s, w, set, noon.Add(time.Minute)).State
	require.Equal(t, 3, s.Rounds[0].Pods)
	require.Equal(t, noon.Add(time.Second), s.Rounds[0].Time)
	s = s.RecordChange(lowerCPU(noon.Add(time.Minute)))
	require.Equal(t, 4, s.Rounds[0].Pods)
	require.Equal(t, noon.Add(time.Second), s.Rounds[0].Time)
	require.Equal(t, []policy.Container{requests("app", 200, -1)}, s.Rounds[0].To)

	later := past("R")
	later.Rounds[0].Time = noon
	later.openRound(noon.Add(time.Hour))
	require.Zero(t, Hold(later, w, set, noon.Add(time.Hour)).State.Rounds[0].Pods, "those of a round before are none of this one")
}

func TestRound_RevertsOfMembersCountOnce(t *testing.T) {
	w, set := deployment(fleet.Canary, 10), unlimited()
	set.Percentage = 50
	s := Hold(State{}, w, set, noon).State
	for i := range 5 {
		s = change(s, &w.Pods[i], noon)
	}
	for i := range 5 {
		s = end(s, &w.Pods[i], Reverted, Restart, noon, noon.Add(time.Duration(i+1)*time.Minute))
		s = Hold(s, w, set, noon.Add(time.Duration(i+1)*time.Minute)).State
	}
	require.Len(t, s.Rounds, 1)
	require.Equal(t, Reverted, s.Rounds[0].Outcome)
	require.Equal(t, Restart, s.Rounds[0].Reason)
	require.Equal(t, 5, s.Rounds[0].Pods)
	require.Equal(t, 1, s.Reverts())
	require.Equal(t, noon.Add(2*time.Hour+time.Minute), s.CooldownUntil, "twice the hour, from the first revert on")
	require.Zero(t, s.Degraded)
	require.Equal(t, PhaseCanary, s.Phase)
}

func TestOneShot_ChangesOnePodPerRound(t *testing.T) {
	w, set := deployment(fleet.OneShot, 3), unlimited()
	w.Pods[0].Due = false
	h := Hold(State{}, w, set, noon)
	require.Equal(t, []string{"p1"}, releasedPods(w, h), "among those that would change")
	s := change(h.State, &w.Pods[1], noon)
	require.Empty(t, releasedPods(w, Hold(s, w, set, noon.Add(time.Minute))))
	s = end(s, &w.Pods[1], Success, "", noon, noon.Add(5*time.Minute))
	h = Hold(s, w, set, noon.Add(5*time.Minute))
	require.Empty(t, releasedPods(w, h))
	require.Equal(t, noon.Add(65*time.Minute), h.State.CooldownUntil)
	h = Hold(h.State, w, set, noon.Add(65*time.Minute))
	require.Equal(t, []string{"p2"}, releasedPods(w, h))
	// The process ends before it records the change.
	w.Pods[2].ObservedSince, w.Pods[2].Due, w.Pods[0].Due = noon.Add(65*time.Minute), false, true
	require.Empty(t, releasedPods(w, Hold(h.State, w, set, noon.Add(66*time.Minute))))
	s = end(h.State, &w.Pods[2], Success, "", noon.Add(65*time.Minute), noon.Add(70*time.Minute))
	h = Hold(s, w, set, noon.Add(70*time.Minute))
	require.Equal(t, 1, h.State.Rounds[0].Pods)
	require.Equal(t, Success, h.State.Rounds[0].Outcome)
}

func TestOneShot_WaitsForDeferredPod(t *testing.T) {
	w, set := deployment(fleet.OneShot, 2), unlimited()
	s := change(Hold(State{}, w, set, noon).State, &w.Pods[0], noon)
	w.Pods[0].Deferred, w.Pods[0].Due = true, true
	h := Hold(s, w, set, noon.Add(time.Hour-1))
	require.Empty(t, releasedPods(w, h), "the round has its pod")
	require.Empty(t, h.State.Rounds[0].Outcome)
	h = Hold(h.State, w, set, noon.Add(time.Hour))
	require.Equal(t, Superseded, h.State.Rounds[0].Outcome, "but not for ever")
	require.Equal(t, []string{"p1"}, releasedPods(w, Hold(h.State, w, set, noon.Add(2*time.Hour))))
	w.Pods[0].Terminating = true
	require.Equal(t, Superseded, Hold(s, w, set, noon.Add(time.Minute)).State.Rounds[0].Outcome, "nor for one that goes")
}

func TestRound_IgnoresPodsOfEarlierRounds(t *testing.T) {
	w, set := deployment(fleet.Auto, 2), settings()
	w.Pods[0].Deferred, w.Pods[0].Due, w.Pods[0].ObservedSince = true, false, noon.Add(-time.Hour)
	s := change(Hold(State{}, w, set, noon).State, &w.Pods[1], noon)
	s = end(s, &w.Pods[1], Success, "", noon, noon.Add(time.Minute))
	require.Equal(t, Success, Hold(s, w, set, noon.Add(time.Minute)).State.Rounds[0].Outcome)
}

func TestInherit_ReleasesAllPods(t *testing.T) {
	w, set := deployment(fleet.Inherit, 2), settings()
	set.Cooldown = 0
	s := change(Hold(State{}, w, set, noon).State, &w.Pods[0], noon)
	h := Hold(s, w, set, noon.Add(time.Minute))
	require.Equal(t, []string{"p0", "p1"}, releasedPods(w, h))
	w.Pods[1].Due = false
	s = end(h.State, &w.Pods[0], Success, "", noon, noon.Add(time.Minute))
	require.Equal(t, Success, Hold(s, w, set, noon.Add(time.Minute)).State.Rounds[0].Outcome)
}

func TestRound_Outcome(t *testing.T) {
	for name, c := range map[string]struct {
		ends []Outcome
		want Outcome
	}{
		"all well": {[]Outcome{Success, Success}, Success}, "one well": {[]Outcome{Failed, Success}, Success},
		"none well": {[]Outcome{Superseded, Failed}, Failed}, "not seen": {[]Outcome{Superseded, Unobserved}, Unobserved},
		"evicted": {[]Outcome{Failed, Evicted}, Evicted}, "gone": {nil, Superseded},
	} {
		t.Run(name, func(t *testing.T) {
			w, set := deployment(fleet.Auto, 2), unlimited()
			s := Hold(State{}, w, set, noon).State
			for i := range w.Pods {
				s = change(s, &w.Pods[i], noon)
			}
			for i, o := range c.ends {
				why := map[Outcome]Harm{Failed: InfeasibleResize}[o]
				s = s.EndObservation(ObservationEnd{UID: w.Pods[i].UID, Change: lowerCPU(noon), Outcome: o, Harm: why}, set, noon.Add(time.Minute))
			}
			w.Pods = nil
			s = Hold(s, w, set, noon.Add(time.Minute)).State
			require.Equal(t, c.want, s.Rounds[0].Outcome)
			require.Equal(t, c.want == Failed, s.Rounds[0].Reason == InfeasibleResize)
			require.Equal(t, noon.Add(61*time.Minute), s.CooldownUntil)
		})
	}
}

func TestSchedule_BlocksUntilNextOpening(t *testing.T) {
	w, set := deployment(fleet.Auto, 1), settings()
	set.Schedule = &Schedule{Windows: []Window{window("22:00", "06:00")}, Zone: time.UTC}
	h := Hold(State{}, w, set, noon)
	require.Equal(t, Condition{"OutsideWindow", noon}, h.State.ScheduleBlocked)
	require.Equal(t, noon.Add(10*time.Hour), h.Next)
	cooling := h.State
	cooling.CooldownUntil = noon.Add(time.Hour)
	require.Equal(t, noon.Add(10*time.Hour), Hold(cooling, w, set, noon).Next)
	long := set
	long.Cooldown, cooling.CooldownUntil = 24*time.Hour, noon.Add(20*time.Hour)
	require.Equal(t, noon.Add(34*time.Hour), Hold(cooling, w, long, noon).Next, "the window in between comes too early")
	h = Hold(h.State, w, set, noon.Add(time.Hour))
	require.Equal(t, noon, h.State.ScheduleBlocked.Since)
	h = Hold(h.State, w, set, noon.Add(10*time.Hour))
	require.Zero(t, h.State.ScheduleBlocked)
	require.Equal(t, []string{"p0"}, releasedPods(w, h))
	w.Pods[0].Due = false
	require.Zero(t, Hold(State{}, w, set, noon).State.ScheduleBlocked, "nothing waits for it")
	w.StopReason = reason.PolicyPaused
	require.Zero(t, Hold(State{ScheduleBlocked: Condition{"OutsideWindow", noon}}, w, set, noon).State.ScheduleBlocked, "it is not what keeps it")
}

func TestFloor_BlocksRevertedResources(t *testing.T) {
	w, set := deployment(fleet.Auto, 1), settings()
	s := change(Hold(State{}, w, set, noon).State, &w.Pods[0], noon)
	s = end(s, &w.Pods[0], Reverted, Pressure, noon, noon)
	floor := func(cpu resources.Amount, hash string, after time.Duration) resources.List {
		return s.Floor("app", resources.NewList(cpu, 50*mi), hash, noon.Add(after))
	}
	kept := resources.List{}.With(resources.CPU, 500)
	require.Equal(t, kept, floor(200, "h", time.Minute), "memory was not lowered")
	require.Equal(t, kept, floor(100, "h", 7*24*time.Hour-1))
	require.Equal(t, kept, floor(220, "", time.Minute), "it wanders")
	require.Zero(t, floor(221, "h", time.Minute), "it rose")
	require.Zero(t, floor(200, "h", 7*24*time.Hour))
	require.Equal(t, kept, floor(200, "h", -time.Hour), "a clock that is behind")
	require.Zero(t, floor(200, "h", -time.Hour-1), "by more")
	require.Zero(t, floor(200, "other", time.Minute), "the policy changed")
	require.Zero(t, s.Floor("proxy", resources.NewList(1, 1), "h", noon))
	require.Zero(t, s.Floor("app", resources.List{}, "h", noon), "nothing is recommended")
	require.Len(t, Hold(s, w, set, noon.Add(time.Hour)).State.RevertedResources, 1)
	require.Empty(t, Hold(s, w, set, noon.Add(7*24*time.Hour)).State.RevertedResources)
	set.Hash = "other"
	require.Empty(t, Hold(s, w, set, noon.Add(time.Hour)).State.RevertedResources)
}

func TestFloor_UsesLastProvenResources(t *testing.T) {
	step := func(s State, from, to resources.Amount, o Outcome) State {
		c := Change{At: noon, Containers: []ContainerChange{{From: requests("app", from, 100), To: requests("app", to, -1)}}}
		return s.RecordChange(c).EndObservation(ObservationEnd{UID: "p0", Change: c, Outcome: o}, settings(), noon)
	}
	cpu := func(s State) resources.Amount {
		return s.Floor("app", resources.NewList(100, 1), "", noon).Value(resources.CPU)
	}
	s := step(State{}, 1000, 600, Success)
	s = step(s, 600, 300, Reverted)
	require.EqualValues(t, 600, cpu(s))
	s = step(s, 900, 250, Reverted) // another pod, never changed before
	require.EqualValues(t, 600, cpu(s))
	require.EqualValues(t, 300, s.RevertedResources[0].Requests.Value(resources.CPU), "all of both did harm")
	s = step(s, 1000, 700, Reverted) // resources proven before now do harm
	require.EqualValues(t, 1000, cpu(s))

	later := Change{At: noon, Containers: []ContainerChange{{From: requests("app", 900, 100), To: requests("app", 250, -1)}}}
	s = s.EndObservation(ObservationEnd{UID: "p0", Change: later, Outcome: Reverted}, settings(), noon.Add(revertRetention))
	require.EqualValues(t, 250, s.RevertedResources[0].Requests.Value(resources.CPU), "the harm of a week ago is forgotten")
}

func TestState_SortsContainers(t *testing.T) {
	c := Change{At: noon}
	for _, name := range []string{"web", "app", "proxy"} {
		c.Containers = append(c.Containers, ContainerChange{From: requests(name, 500, 100), To: requests(name, 100, 100)})
	}
	s := State{}.EndObservation(ObservationEnd{Change: c, Outcome: Success}, settings(), noon).EndObservation(ObservationEnd{Change: c, Outcome: Reverted}, settings(), noon)
	for i, name := range []string{"app", "proxy", "web"} {
		require.Equal(t, name, s.ProvenResources[i].Name)
		require.Equal(t, name, s.RevertedResources[i].Name)
	}
}

func TestRevert_AfterRoundEndChangesOutcome(t *testing.T) {
	w, set := deployment(fleet.Auto, 1), settings()
	s := change(Hold(State{}, w, set, noon).State, &w.Pods[0], noon)
	w.Pods[0].Deferred = true
	s = Hold(s, w, set, noon.Add(time.Hour)).State
	require.Equal(t, Superseded, s.Rounds[0].Outcome, "nobody waits for a node for ever")
	w.Pods[0].Deferred = false
	s = end(s, &w.Pods[0], Reverted, Restart, noon.Add(90*time.Minute), noon.Add(92*time.Minute))
	require.Len(t, s.Rounds, 1)
	require.Equal(t, Reverted, s.Rounds[0].Outcome)
	require.Equal(t, noon.Add(212*time.Minute), s.CooldownUntil)
}

func TestEndObservation_IgnoresChangeOfEarlierRound(t *testing.T) {
	s := State{Rounds: []Round{{Time: noon.Add(time.Hour)}, {Time: noon, Pods: 1, Outcome: Reverted}}}
	s = s.EndObservation(ObservationEnd{UID: "p0", Change: lowerCPU(noon.Add(time.Minute)), Outcome: Success}, settings(), noon.Add(time.Hour))
	require.False(t, s.Rounds[0].begun())
	require.NotEmpty(t, s.ProvenResources, "though it did well")
}

func TestRound_RefusedChangeStartsIt(t *testing.T) {
	w, set := deployment(fleet.Auto, 1), settings()
	s := Hold(State{}, w, set, noon).State // room appears days later
	friday := noon.Add(96 * time.Hour)
	s = s.EndObservation(ObservationEnd{UID: "p0", Change: lowerCPU(friday), Outcome: Failed}, set, friday)
	require.Zero(t, s.Rounds[0].Pods)
	require.Equal(t, []string{"p0"}, releasedPods(w, Hold(s, w, set, friday.Add(time.Hour-1))), "it is tried again")
	s = Hold(s, w, set, friday.Add(time.Hour)).State
	require.Equal(t, Failed, s.Rounds[0].Outcome)
	require.Equal(t, friday, s.Rounds[0].Time)
}

func TestRevert_RepeatedRevertCountsOnce(t *testing.T) {
	w, set, s := canary(t, 4, 50)
	s = change(change(s, &w.Pods[0], noon), &w.Pods[1], noon)
	s = end(s, &w.Pods[1], Success, "", noon, noon)
	once := end(s, &w.Pods[0], Reverted, OOMKill, noon, noon.Add(time.Minute))
	require.Equal(t, once, end(once, &w.Pods[0], Reverted, OOMKill, noon, noon.Add(2*time.Minute)), "by another process, a minute later")
	require.Equal(t, []Member{{UID: "p0"}, {UID: "p1"}}, once.Members)
	require.Equal(t, reason.CoolingDown, Hold(once, w, set, noon.Add(time.Minute)).Pods[0].Reason)
}

func TestRevert_OfEarlierRoundEndsCurrentRound(t *testing.T) {
	first := Round{Time: noon, Pods: 1, Outcome: Success}
	late := ObservationEnd{UID: "p0", Change: lowerCPU(noon.Add(time.Minute)), Outcome: Reverted, Harm: OOMKill}
	now := noon.Add(3 * time.Hour)
	s := State{Rounds: []Round{{Time: noon.Add(2 * time.Hour), Pods: 1}, first}}.EndObservation(late, settings(), now)
	require.Equal(t, []Outcome{Superseded, Reverted}, []Outcome{s.Rounds[0].Outcome, s.Rounds[1].Outcome})
	require.Equal(t, now.Add(2*time.Hour), s.CooldownUntil)
	s = State{Rounds: []Round{{Time: noon.Add(2 * time.Hour)}, first}}.EndObservation(late, settings(), now)
	require.Len(t, s.Rounds, 1, "nothing had happened in it")
	require.Equal(t, Reverted, s.Rounds[0].Outcome)
	require.Equal(t, 1, s.Rounds[0].Pods)
}

func TestRevert_WithoutRecordIsRecorded(t *testing.T) {
	s := State{}.EndObservation(ObservationEnd{UID: "p0", Change: lowerCPU(noon), Outcome: Reverted, Harm: OOMKill}, settings(), noon.Add(time.Minute))
	require.Equal(t, 1, s.Reverts())
	require.Equal(t, 1, s.Rounds[0].Pods)
	require.Equal(t, noon.Add(121*time.Minute), s.CooldownUntil)
	require.Len(t, s.RevertedResources, 1)
}

func TestHold_ShortHistoryAllowsOnlyOOMResizes(t *testing.T) {
	for _, mode := range []fleet.Mode{fleet.OneShot, fleet.Canary, fleet.Auto} {
		t.Run(mode.String(), func(t *testing.T) {
			w := deployment(mode, 3)
			w.ShortHistory = true
			h := Hold(State{}, w, unlimited(), noon)
			require.Empty(t, releasedPods(w, h))
			require.Equal(t, []reason.Reason{reason.ShortHistory, reason.ShortHistory, reason.ShortHistory}, reasons(h))
			for _, a := range h.Pods {
				require.True(t, a.MemoryOnly)
			}
			require.Empty(t, h.State.Rounds)
			w.ShortHistory = false
			h = Hold(h.State, w, unlimited(), noon)
			require.NotEmpty(t, releasedPods(w, h))
		})
	}
	w := deployment(fleet.Inherit, 1)
	w.ShortHistory = true
	require.Equal(t, []string{"p0"}, releasedPods(w, Hold(State{}, w, unlimited(), noon)), "the VPA decides")
}
