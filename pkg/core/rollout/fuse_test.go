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
)

// ended returns a state with rounds of one outcome that ended the given minutes after noon.
func ended(o Outcome, minutes ...int) (s State) {
	for _, m := range minutes {
		at := noon.Add(time.Duration(m) * time.Minute)
		s.Rounds = append(s.Rounds, Round{Time: at, Pods: 1, Outcome: o, Ended: at})
	}
	return s
}

func TestPolicyRoundsTrip(t *testing.T) {
	minute := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	for _, tc := range []struct {
		name         string
		rounds       []State
		acknowledged time.Time
		now          time.Time // zero: two hours after noon
		want         time.Time // zero: it does not trip
	}{
		{name: "no rounds"},
		{name: "one of five", rounds: []State{ended(Success, 0, 1, 2, 3), ended(Reverted, 4)}},
		{name: "two of five", rounds: []State{ended(Success, 0, 1, 2), ended(Reverted, 3, 4)}, want: minute(4)},
		{name: "four of four are too few", rounds: []State{ended(Reverted, 0, 1, 2, 3)}},
		{name: "a fifth of ten is not more than a fifth", now: minute(30), rounds: []State{ended(Success, 0, 1, 2, 3, 4, 5, 6, 7), ended(Reverted, 8, 9)}},
		{name: "a fifth of ten, then two of nine within the hour", rounds: []State{ended(Success, 0, 1, 2, 3, 4, 5, 6, 7), ended(Reverted, 8, 9)}, want: minute(60)},
		{name: "a revert that its node defers counts", rounds: []State{ended(Success, 0, 1, 2), ended(RevertDeferred, 3, 4)}, want: minute(4)},
		{name: "spread over two hours", rounds: []State{ended(Success, 0, 1, 2), ended(Reverted, 61, 62)}},
		{name: "the successes leave the hour first",
			rounds: []State{ended(Success, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), ended(Reverted, 30, 31, 32, 33, 34)}, want: minute(60)},
		{name: "and have not left it yet", now: minute(59),
			rounds: []State{ended(Success, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), ended(Reverted, 30, 31, 32, 33, 34)}},
		{name: "hours ago", rounds: []State{ended(Success, -230, -230, -230), ended(Reverted, -230, -230)}, want: minute(-230)},
		{name: "too long ago", rounds: []State{ended(Success, -241, -241, -241), ended(Reverted, -241, -241)}},
		{name: "acknowledged with its time", rounds: []State{ended(Success, 0, 1, 2), ended(Reverted, 3, 4)}, acknowledged: minute(4)},
		{name: "acknowledged later", rounds: []State{ended(Success, 0, 1, 2), ended(Reverted, 3, 4)}, acknowledged: minute(90)},
		{name: "acknowledged before it tripped", rounds: []State{ended(Success, 0, 1, 2), ended(Reverted, 3, 4)}, acknowledged: minute(-1), want: minute(4)},
		{name: "acknowledged for ever", rounds: []State{ended(Success, 0, 1, 2), ended(Reverted, 3, 4)}, acknowledged: minute(1 << 20), want: minute(4)},
		{name: "it trips again", rounds: []State{ended(Reverted, 0, 1, 2, 3, 4), ended(Reverted, 10, 11, 12, 13, 14)}, acknowledged: minute(5), want: minute(14)},
		{name: "few rounds after an acknowledgement", rounds: []State{ended(Reverted, 0, 1, 2, 3, 4), ended(Reverted, 10, 11, 12, 13)}, acknowledged: minute(5)},
		{name: "a clock that was half an hour ahead", now: noon, rounds: []State{ended(Reverted, 26, 27, 28, 29, 30)}, want: minute(30)},
		{name: "and the time that it wrote is acknowledged", now: noon, rounds: []State{ended(Reverted, 26, 27, 28, 29, 30)}, acknowledged: minute(30)},
		{name: "a clock that was a day ahead", now: noon, rounds: []State{ended(Reverted, 1440, 1441, 1442, 1443, 1444)}},
		{name: "rounds without a time are of an earlier version", rounds: []State{{Rounds: []Round{{Outcome: Reverted}, {Outcome: Reverted}, {Outcome: Reverted}, {Outcome: Reverted}, {Outcome: Reverted}}}}},
		{name: "large workloads do not hide the reverts of others", want: minute(4), rounds: []State{
			ended(Reverted, 3, 4), {Rounds: []Round{{SoFar: Success, Last: minute(0)}}}, {Rounds: []Round{{SoFar: Success, Last: minute(1)}}}, {Rounds: []Round{{SoFar: Success, Last: minute(2)}}}}},
		{name: "nor dilute them", want: minute(4), rounds: []State{
			ended(Success, 0, 1, 2), ended(Reverted, 3, 4), {Rounds: []Round{{SoFar: Success, Last: minute(0)}}}, {Rounds: []Round{{SoFar: Success, Last: minute(1)}}},
			{Rounds: []Round{{SoFar: Success, Last: minute(1)}}}, {Rounds: []Round{{SoFar: Success, Last: minute(1)}}}, {Rounds: []Round{{SoFar: Success, Last: minute(1)}}}}},
		{name: "evictions do not dilute reverts", want: minute(9), rounds: []State{ended(Evicted, 0, 1, 2, 3, 4, 5, 6), ended(Success, 7), ended(Reverted, 8, 9)}},
		{name: "nor do other rounds without a verdict", want: minute(12),
			rounds: []State{ended(Superseded, 0, 1, 2), ended(Unobserved, 3, 4, 5), ended(Failed, 6, 7, 8), ended(Reverted, 11, 12)}},
		{name: "but they count among the five", want: minute(4), rounds: []State{ended(Evicted, 0, 1, 2), ended(Reverted, 3, 4)}},
		{name: "and one revert among them trips nothing", rounds: []State{ended(Evicted, 0, 1, 2, 3), ended(Reverted, 4), ended(Reverted, 90)}},
		{name: "a round without a judged change is no evidence", rounds: []State{
			ended(Reverted, 3, 4), {Rounds: []Round{{Last: minute(0)}}}, {Rounds: []Round{{Last: minute(1)}}}, {Rounds: []Round{{Last: minute(2)}}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p PolicyRounds
			for _, s := range tc.rounds {
				p.Add("shop", "", s, "")
			}
			if tc.now.IsZero() {
				tc.now = noon.Add(2 * time.Hour)
			}
			require.Equal(t, tc.want, p.Trip(tc.acknowledged, tc.now).At)
		})
	}
}

func TestPolicyRoundsTrip_Namespaces(t *testing.T) {
	minute := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	type workload struct {
		namespace string
		State
	}
	in := func(namespace string, o Outcome, minutes ...int) (all []workload) {
		for _, m := range minutes {
			all = append(all, workload{namespace, ended(o, m)})
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		rounds [][]workload
		at     time.Time // zero: it does not trip
		held   []string
	}{
		{name: "the only namespace", rounds: [][]workload{in("a", Reverted, 0, 1, 2, 3, 4)}, at: minute(4)},
		{name: "other namespaces without rounds", rounds: [][]workload{in("a", Reverted, 0, 1, 2, 3, 4), {{namespace: "b"}}}, at: minute(4), held: []string{"a"}},
		{name: "successes of others", rounds: [][]workload{in("a", Reverted, 3, 4), in("b", Success, 0, 1, 2)}, at: minute(4), held: []string{"a"}},
		{name: "one revert in each of two", rounds: [][]workload{in("a", Reverted, 3), in("b", Reverted, 4), in("b", Success, 0, 1, 2)}, at: minute(4)},
		{name: "all rounds of two", rounds: [][]workload{in("a", Reverted, 0, 1, 2), in("b", Reverted, 3, 4)}, at: minute(4)},
		{name: "many reverts of one, and one of many rounds of another", at: minute(9), held: []string{"a"},
			rounds: [][]workload{in("a", Reverted, 5, 6, 7, 8, 9), in("b", Success, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), in("b", Reverted, 1)}},
		{name: "one after the other", at: minute(124), held: []string{"a", "b"},
			rounds: [][]workload{in("a", Reverted, 3, 4), in("b", Success, 0, 1, 2), in("b", Reverted, 123, 124), in("a", Success, 120, 121, 122)}},
		{name: "then both at a time", at: minute(12),
			rounds: [][]workload{in("a", Reverted, 3, 4), in("b", Success, 0, 1, 2), in("b", Reverted, 11, 12)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p PolicyRounds
			for _, workloads := range tc.rounds {
				for _, w := range workloads {
					p.Add(w.namespace, "deployment-web", w.State, "")
				}
			}
			got := p.Trip(time.Time{}, noon.Add(3*time.Hour))
			require.Equal(t, tc.at, got.At)
			require.Equal(t, tc.held, got.Namespaces)
			for _, namespace := range []string{"a", "b"} {
				want := !tc.at.IsZero() && (len(tc.held) == 0 || slices.Contains(tc.held, namespace))
				require.Equal(t, want, got.Holds(namespace), namespace)
			}
		})
	}
}

// Rounds that were in progress when the fuse tripped end later. The acknowledgement covers them.
func TestPolicyRoundsTrip_AcknowledgesRoundsInProgress(t *testing.T) {
	minute := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	rounds := func(inProgress Round) (p PolicyRounds) {
		p.Add("shop", "", ended(Reverted, 0, 1, 2, 3, 4), "")
		for range 80 {
			p.Add("shop", "", State{Rounds: []Round{inProgress}}, "")
		}
		return p
	}
	p := rounds(Round{Time: minute(3), Last: minute(6), Pods: 1})
	tripped := p.Trip(time.Time{}, minute(7)).At
	require.Equal(t, minute(6), tripped, "the last change was sent while the trip was noticed")
	p = rounds(Round{Time: minute(3), Last: minute(6), Pods: 1, Outcome: Reverted, Ended: minute(20)})
	require.Zero(t, p.Trip(tripped, minute(21)).At)
	p = rounds(Round{Time: minute(3), Last: minute(15), Pods: 2, Outcome: Reverted, Ended: minute(20)})
	require.Equal(t, minute(20), p.Trip(tripped, minute(21)).At, "changes after the acknowledgement count")
}

func TestPolicyRoundsStarts_CountsNamespaces(t *testing.T) {
	var p PolicyRounds
	for _, hours := range []int{0, 2, 20} {
		p.Add("a", "", State{Hash: "h", Started: noon.Add(-time.Duration(hours) * time.Hour)}, "h")
	}
	p.Add("b", "", State{Hash: "h", Started: noon}, "h")
	p.Add("c", "", State{Hash: "h", Started: noon.Add(-48 * time.Hour)}, "h")
	left, by := p.Starts(10, 0, noon)
	require.Equal(t, 8, left)
	require.Equal(t, map[string]StartCount{"a": {Recent: 1, All: 3}, "b": {Recent: 1, All: 1}}, by)
	require.Negative(t, by["b"].Compare(by["a"]))
	require.Negative(t, by["c"].Compare(by["b"]))
}

func TestHold_ForgetsResourcesOfRemovedContainers(t *testing.T) {
	w, set := deployment(fleet.Auto, 2), settings()
	s := Hold(State{}, w, set, noon).State
	for i := range 400 {
		name := fmt.Sprintf("old-%03d", i)
		s.ProvenResources = append(s.ProvenResources, policy.Container{Name: name})
		s.RevertedResources = append(s.RevertedResources, RevertedResources{Container: policy.Container{Name: name}, At: noon})
	}
	s.ProvenResources = append(s.ProvenResources, policy.Container{Name: w.Target[0].Name})
	held := Hold(s, w, set, noon).State
	require.Equal(t, []policy.Container{{Name: w.Target[0].Name}}, held.ProvenResources)
	require.Empty(t, held.RevertedResources)
	w.Target = nil
	require.Len(t, Hold(s, w, set, noon).State.ProvenResources, 401, "without a recommendation nothing is known")
}

func TestHold_BoundsCanaryMembers(t *testing.T) {
	w, set := deployment(fleet.Canary, 2000), settings()
	set.Percentage, set.MaxConcurrent = 50, 0
	require.Len(t, Hold(State{}, w, set, noon).State.Members, 300)
}

func TestPolicyRoundsStarts_DoublesEachHour(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rate   int
		period time.Duration
		open   func(hour int) bool // of the schedule; nil: always
		total  []int               // after each hour
	}{
		{name: "by default", rate: 10, total: []int{10, 20, 40, 80, 160, 320}},
		{name: "one", rate: 1, total: []int{1, 2, 4, 8}},
		{name: "a long observation", rate: 10, period: 2 * time.Hour, total: []int{10, 10, 20, 20, 40}},
		{name: "a closed schedule is no evidence", rate: 10, open: func(hour int) bool { return hour < 2 || hour > 6 }, total: []int{10, 20, 20, 20, 20, 20, 20, 40}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var states []State
			for m := range len(tc.total) * 60 {
				now := noon.Add(time.Duration(m) * time.Minute)
				var p PolicyRounds
				for _, s := range states {
					p.Add("shop", "", s, "h")
				}
				if tc.open == nil || tc.open(m/60) {
					left, _ := p.Starts(tc.rate, tc.period, now)
					for range left {
						states = append(states, State{Hash: "h", Started: now})
					}
				}
				if (m+1)%60 == 0 {
					require.Len(t, states, tc.total[m/60], "hour %d", m/60)
				}
			}
		})
	}
}

func TestPolicyRoundsStarts(t *testing.T) {
	states := func(n int, ago time.Duration) (all []State) {
		for range n {
			all = append(all, State{Hash: "h", Started: noon.Add(-ago)})
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		states []State
		rate   int
		hash   string
		want   int
	}{
		{name: "a new policy", rate: 10, hash: "h", want: 10},
		{name: "without limit", rate: 0, hash: "h", states: states(5000, 0), want: 1<<63 - 1},
		{name: "under another hash all start again", rate: 10, hash: "changed", states: states(5000, 2*time.Hour), want: 10},
		{name: "within the hour", rate: 10, hash: "h", states: states(10, 59*time.Minute)},
		{name: "after the hour", rate: 10, hash: "h", states: states(10, time.Hour), want: 10},
		{name: "workloads that are selected after a calm day", rate: 10, hash: "h", states: states(5000, 26*time.Hour), want: 10},
		{name: "a clock that was half an hour ahead", rate: 10, hash: "h", states: states(10, -30*time.Minute)},
		{name: "a clock that was a year ahead does not stop the policy", rate: 10, hash: "h", states: states(10, -365*24*time.Hour), want: 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p PolicyRounds
			for _, s := range tc.states {
				p.Add("shop", "", s, tc.hash)
			}
			left, _ := p.Starts(tc.rate, 5*time.Minute, noon)
			require.Equal(t, tc.want, left)
		})
	}
}

func TestHold_StartRateBlocksUnstartedWorkloads(t *testing.T) {
	w, set := deployment(fleet.Auto, 2), settings()
	w.StartBlocked = true
	held := Hold(State{}, w, set, noon)
	require.Equal(t, []PodHold{{Reason: reason.StartRate, MemoryOnly: true}, {Reason: reason.StartRate, MemoryOnly: true}}, held.Pods)
	require.Empty(t, held.State.Rounds)

	w.StartBlocked = false
	s := change(Hold(State{}, w, set, noon).State, &w.Pods[0], noon.Add(time.Second))
	require.Equal(t, noon.Add(time.Second), s.Started)
	s = end(s, &w.Pods[0], Success, "", noon.Add(time.Second), noon.Add(6*time.Minute))
	w.StartBlocked = true
	require.Equal(t, []string{"p1"}, releasedPods(w, Hold(s, w, set, noon.Add(6*time.Minute))), "one that has started goes on")

	set.Hash = "changed"
	held = Hold(s, w, set, noon.Add(6*time.Minute))
	require.Empty(t, releasedPods(w, held), "a running round must not bring another recipe")
	require.Zero(t, held.State.Started)
	require.Equal(t, PolicyChanged, held.State.StartPending.Reason, "its rounds are no start")
	s = change(held.State, &w.Pods[1], noon.Add(7*time.Minute))
	require.Zero(t, s.StartPending)
}

func TestHold_TrippedFuseAllowsOnlyOOMResizes(t *testing.T) {
	for _, mode := range []fleet.Mode{fleet.Auto, fleet.Inherit} {
		t.Run(mode.String(), func(t *testing.T) {
			w, set := deployment(mode, 2), settings()
			s := change(Hold(State{}, w, set, noon).State, &w.Pods[0], noon.Add(time.Second))
			s = end(s, &w.Pods[0], Success, "", noon.Add(time.Second), noon.Add(6*time.Minute))
			w.FuseTripped = true
			held := Hold(s, w, set, noon.Add(6*time.Minute))
			require.Empty(t, releasedPods(w, held))
			require.Equal(t, reason.FuseTripped, held.Pods[1].Reason)
			require.True(t, held.Pods[1].MemoryOnly)
		})
	}
}
