package disruption

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// withShare is a pod on node n1 at its recommendation, whose CPU share changes.
func withShare(cause Cause, has, gets resources.Amount, changes ...func(*Pod)) func(*Pod) {
	return func(p *Pod) {
		p.Containers[0] = container(has, 1000, 0, 1000)
		f := &p.Containers[0].Target
		f.Requests, f.Bounds = resources.List{}.With(resources.Memory, 1000<<20), resources.Bounds{Target: resources.List{}.With(resources.Memory, 1000<<20)}
		peak, target := *f, policy.ContainerTarget{Name: "app", Requests: resources.List{}.With(resources.CPU, gets), Bounds: resources.Bounds{Target: resources.List{}.With(resources.CPU, gets)}}
		peak.Requests = peak.Requests.With(resources.CPU, 2000)
		p.Share = &Share{Kinds: [resources.Kinds]bool{resources.CPU: true}, Cause: cause, Peak: []policy.ContainerTarget{peak}, Target: []policy.ContainerTarget{target}, Shrinks: gets < has}
		for _, change := range changes {
			change(p)
		}
		onNode(p)
	}
}

func moreMemory(p *Pod) {
	f := &p.Containers[0].Target
	f.Requests = resources.List{}.With(resources.Memory, 4000<<20)
	f.Bounds = resources.Bounds{Lower: f.Requests, Target: f.Requests, Upper: f.Requests}
}

func formatStages(r Result) (lines []string) {
	for _, a := range r.Actions {
		line := fmt.Sprintf("%d %s: %s", a.Stage, a.Pod, a.Cause)
		if a.Share != nil {
			line += " and " + string(a.Share.Cause)
		}
		if a.Skip != "" {
			line += " without " + string(a.Skip)
		}
		lines = append(lines, line)
	}
	first := len(lines)
	for _, s := range r.Skipped {
		lines = append(lines, fmt.Sprintf("skip %s: %s", s.Pod, s.Reason))
	}
	slices.Sort(lines[first:])
	return lines
}

func planShares(config Config, room *Capacity, changes ...func(*Pod)) Result {
	config.FreeResizes = true
	v := deployment(InPlaceOrRecreate, len(changes), pods(len(changes), func(i int, p *Pod) { changes[i](p) })...)
	return Plan(View{VPAs: []VPA{*v}, Room: room}, State{}, config, noon)
}

// Shrinking shares go first. The room they free counts in the next plan.
func TestPlan_SharesUseRoomInStages(t *testing.T) {
	grows := func(p *Pod) { // by 900m
		onNode(p)
		p.Containers[0] = container(100, 1000, 1000, 1000)
	}
	restarts := func(p *Pod) { grows(p); p.Containers[0].Restarts[resources.CPU] = true } // so that it is not requested without room
	all := []func(*Pod){
		withShare(Shared, 500, 900), withShare(Shared, 900, 500), withShare(ShareEnded, 500, 900), restarts, withShare(ShareReverted, 500, 900),
	}
	for _, tc := range []struct {
		name string
		free resources.Amount
		want []string
	}{
		{"all fit", 2100, []string{"-1 p4: ShareReverted", "0 p3: OutOfBounds", "1 p2: ShareEnded", "2 p1: Shared", "3 p0: Shared"}},
		{"all but the share that grows", 2099, []string{"-1 p4: ShareReverted", "0 p3: OutOfBounds", "1 p2: ShareEnded", "2 p1: Shared", "skip p0: NodeFull"}},
		{"all but shares that grow", 1699, []string{"-1 p4: ShareReverted", "0 p3: OutOfBounds", "2 p1: Shared", "skip p0: NodeFull", "skip p2: NodeFull"}},
		{"what is recommended has no room beside a revert", 1299, []string{"-1 p4: ShareReverted", "1 p2: ShareEnded", "2 p1: Shared", "3 p0: Shared", "skip p3: NodeFull"}},
		{"a revert alone", 400, []string{"-1 p4: ShareReverted", "2 p1: Shared", "skip p0: NodeFull", "skip p2: NodeFull", "skip p3: NodeFull"}},
		{"nothing that grows", 399, []string{"2 p1: Shared", "skip p0: NodeFull", "skip p2: NodeFull", "skip p3: NodeFull", "skip p4: NodeFull"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := defaults()
			config.Tolerance = 1
			require.Equal(t, tc.want, formatStages(planShares(config, crowdedNode(tc.free), all...)))
		})
	}
}

// A resize deferred on a full node precedes shares, which must not take its room.
func TestPlan_SharesLeaveRoomForDeferredResizes(t *testing.T) {
	more := func(p *Pod) { onNode(p); p.Containers[0] = container(100, 1000, 1000, 1000) }
	require.Equal(t, []string{"0 p0: OutOfBounds", "skip p1: NodeFull"}, formatStages(planShares(defaults(), crowdedNode(500), more, withShare(Shared, 500, 900))))
	config := defaults()
	config.IgnoreCapacity = true
	require.Equal(t, []string{"0 p0: OutOfBounds", "skip p1: NodeFull"}, formatStages(planShares(config, crowdedNode(500), more, withShare(Shared, 500, 900))))
	require.Equal(t, []string{"0 p0: OutOfBounds", "3 p1: Shared"}, formatStages(planShares(config, crowdedNode(1300), more, withShare(Shared, 500, 900))))
}

func TestPlan_IgnoreCapacity(t *testing.T) {
	config := defaults()
	more := func(p *Pod) {
		onNode(p)
		p.Containers[0] = container(100, 1000, 1000, 1000)
		p.Containers[0].Restarts[resources.CPU] = true
	}
	require.Equal(t, []string{"skip p0: NodeFull", "skip p1: NodeFull"}, formatStages(planShares(config, crowdedNode(0), more, withShare(ShareReverted, 500, 900))))
	config.IgnoreCapacity = true
	require.Equal(t, []string{"0 p0: OutOfBounds", "skip p1: NodeFull"}, formatStages(planShares(config, crowdedNode(0), more, withShare(ShareReverted, 500, 900))))
}

func TestPlan_JoinsShareAndRecommendation(t *testing.T) {
	restarts := func(p *Pod) { p.Containers[0].Restarts[resources.Memory] = true }
	stuck := func(p *Pod) {
		p.Resize, p.ResizeSince = ResizeDeferred, noon.Add(-time.Hour)
		p.Containers[0].Spec.Requests = p.Containers[0].Spec.Requests.With(resources.Memory, 2000<<20)
	}
	refuses := func(p *Pod) { p.Share.Skip = reason.ChangedOutside }
	held := func(p *Pod) { p.Held = reason.CoolingDown }
	for _, tc := range []struct {
		name string
		pod  func(*Pod)
		want []string
	}{
		{"a share", withShare(Shared, 500, 900, moreMemory), []string{"0 p0: OutOfBounds and Shared"}},
		{"a share that ends", withShare(ShareEnded, 500, 900, moreMemory), []string{"0 p0: OutOfBounds and ShareEnded"}},
		{"a share that did harm goes first", withShare(ShareReverted, 500, 900, moreMemory), []string{"-1 p0: OutOfBounds and ShareReverted"}},
		{"a restart", withShare(ShareReverted, 500, 900, moreMemory, restarts), []string{"-1 p0: ShareReverted", "0 p0: OutOfBounds"}},
		{"an eviction", withShare(Shared, 500, 900, moreMemory, stuck), []string{"0 p0: ResizeStuck", "3 p0: Shared"}},
		{"a share that waits", withShare(Shared, 500, 900, moreMemory, refuses), []string{"0 p0: OutOfBounds without ChangedOutside"}},
		{"an eviction, and a share that waits", withShare(Shared, 500, 900, moreMemory, stuck, refuses), []string{"0 p0: ResizeStuck"}},
		{"a recommendation that is held", withShare(Shared, 500, 900, moreMemory, held), []string{"3 p0: Shared without CoolingDown"}},
		{"nothing else", withShare(Shared, 500, 900), []string{"3 p0: Shared"}},
		{"both wait", withShare(Shared, 500, 900, moreMemory, held, refuses), []string{"skip p0: CoolingDown"}},
		{"a share that waits, and nothing else", withShare(Shared, 500, 900, refuses), []string{"skip p0: ChangedOutside"}},
		{"a share at its target", withShare(Shared, 500, 500), []string{"skip p0: Unchanged"}},
		{"no move", withShare(Shared, 500, 900, func(p *Pod) { p.Share.Target = nil }), []string{"skip p0: HasShare"}},
		{"nothing is recommended", withShare(Shared, 500, 900, func(p *Pod) { p.Share.Target, p.Containers[0].Target = nil, policy.ContainerTarget{Name: "app"} }), []string{"skip p0: HasShare"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := defaults()
			config.Tolerance, config.MinReplicas = 1, 1
			require.Equal(t, tc.want, formatStages(planShares(config, crowdedNode(9000), tc.pod)))
		})
	}
	r := planShares(defaults(), crowdedNode(9000), withShare(Shared, 500, 900, moreMemory))
	require.Equal(t, resources.List{}.With(resources.Memory, 4000<<20), r.Actions[0].Containers[0].Requests)
	require.Equal(t, resources.List{}.With(resources.CPU, 900), r.Actions[0].Share.Containers[0].Requests)
}

func TestResult_OnlyOOM(t *testing.T) {
	killed := func(p *Pod) { p.Containers[0].OOM = OOM{noon.Add(-time.Hour), noon.Add(-time.Minute)} }
	memory := func(p *Pod) { // gets its memory peak
		p.Share.Kinds = [resources.Kinds]bool{resources.Memory: true}
		p.Share.Target[0].Requests = resources.List{}.With(resources.Memory, 3000<<20)
		p.Share.Target[0].Bounds.Target = p.Share.Target[0].Requests
	}
	for _, tc := range []struct {
		name string
		pod  func(*Pod)
		want []string
	}{
		{"a recommendation", withShare(ShareReverted, 500, 900, moreMemory, killed), []string{"0 p0: OutOfBounds"}},
		{"a share", withShare(ShareReverted, 500, 500, killed, memory), []string{"-1 p0: ShareReverted"}},
		{"both", withShare(Shared, 500, 500, moreMemory, killed, memory), []string{"0 p0: OutOfBounds and Shared"}},
		{"none was killed", withShare(ShareReverted, 500, 900, moreMemory), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			early := planShares(defaults(), crowdedNode(9000), tc.pod).OnlyOOM()
			early.Skipped = nil
			require.Equal(t, tc.want, formatStages(early))
			for _, a := range early.Actions {
				require.False(t, a.MayEvict)
			}
		})
	}
}

func TestPlan_RefusedMemoryEvicts(t *testing.T) {
	evicts := func(p *Pod) { p.Share.MayEvict = true }
	stays := func(p *Pod) { onNode(p); p.Containers[0] = container(1000, 1000, 1000, 1000) }
	config := defaults()
	require.Equal(t, []string{"0 p0: MemoryRefused", "skip p1: Unchanged"}, formatStages(planShares(config, crowdedNode(0), withShare(ShareReverted, 500, 900, evicts), stays)))
	require.Equal(t, []string{"-1 p0: ShareReverted", "skip p1: Unchanged"}, formatStages(planShares(config, crowdedNode(400), withShare(ShareReverted, 500, 900, evicts), stays)))
	require.Equal(t, []string{"skip p0: NodeFull", "skip p1: Unchanged"}, formatStages(planShares(config, crowdedNode(0), withShare(ShareReverted, 500, 900), stays)))
	held := func(p *Pod) { p.Share.Held = reason.OutsideWindow }
	require.Equal(t, []string{"skip p0: OutsideWindow", "skip p1: Unchanged"}, formatStages(planShares(config, crowdedNode(0), withShare(ShareReverted, 500, 900, evicts, held), stays)))
	require.Equal(t, []string{"-1 p0: ShareReverted", "skip p1: Unchanged"}, formatStages(planShares(config, crowdedNode(400), withShare(ShareReverted, 500, 900, evicts, held), stays)),
		"its share moves in place at any time")
}

// A VPA whose policy is gone still ends shares, but applies no recommendation.
func TestPlan_HeldVPAEndsShares(t *testing.T) {
	v := deployment(Off, 2, pods(2, func(i int, p *Pod) {
		withShare(ShareEnded, 500, 900, moreMemory)(p)
		if i == 1 {
			p.Share = nil
		}
	})...)
	v.Held = reason.PolicyUnknown
	require.Equal(t, []string{"1 p0: ShareEnded without PolicyUnknown", "skip p1: PolicyUnknown"},
		formatStages(Plan(View{VPAs: []VPA{*v}, Room: crowdedNode(9000)}, State{}, defaults(), noon)))
}

func TestPlan_KeepsSharesWithUnknownTargetOrRoom(t *testing.T) {
	v := deployment(InPlaceOrRecreate, 1, pods(1, func(_ int, p *Pod) { withShare(ShareReverted, 500, 900)(p) })...)
	before := State{Shared: [shareSteps]PodStates{revertStep: {Protected: map[string]time.Time{"uid-p0": noon}}}}
	r := Plan(View{VPAs: []VPA{*v}}, before, defaults(), noon)
	require.Equal(t, []string{"skip p0: HasShare"}, formatStages(r), "nobody knows what fits")
	require.Equal(t, before.Shared, r.State.Shared)
	v.Outdated = true
	r = Plan(View{VPAs: []VPA{*v}, Room: crowdedNode(9000)}, before, defaults(), noon)
	require.Equal(t, []string{"skip p0: StatusOutdated"}, formatStages(r))
	require.Empty(t, r.State.Shared)
}

func TestPlan_NewShareResetsBackoff(t *testing.T) {
	plan := func(s State, cause Cause, gets resources.Amount) Result {
		v := deployment(InPlaceOrRecreate, 1, pods(1, func(_ int, p *Pod) { withShare(cause, 500, gets)(p) })...)
		return Plan(View{VPAs: []VPA{*v}, Room: crowdedNode(9000)}, s, defaults(), noon.Add(time.Second))
	}
	first := plan(State{}, Shared, 900)
	require.Equal(t, []string{"3 p0: Shared"}, formatStages(first))
	for _, tc := range []struct {
		name    string
		outcome Outcome
		times   int
		cause   Cause
		gets    resources.Amount
		want    string
	}{
		{"failed once", Failed, 1, Shared, 900, "3 p0: Shared"},
		{"failed twice", Failed, 2, Shared, 900, "skip p0: BackingOff"},
		{"another share", Failed, 2, Shared, 950, "3 p0: Shared"},
		{"refused", Infeasible, 1, Shared, 900, "skip p0: Infeasible"},
		{"refused, and more now", Infeasible, 1, Shared, 1000, "skip p0: Infeasible"},
		{"refused, and less now", Infeasible, 1, Shared, 800, "3 p0: Shared"},
		{"reverted after failures", Failed, 2, ShareReverted, 900, "-1 p0: ShareReverted"},
		{"reverted after a refusal", Infeasible, 1, ShareReverted, 1000, "-1 p0: ShareReverted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := plan(State{}, Shared, 900).State
			for range tc.times {
				state.Record(first.Actions[0], tc.outcome, noon)
			}
			require.Empty(t, state.Recommended.Attempts)
			require.Equal(t, []string{tc.want}, formatStages(plan(state, tc.cause, tc.gets)))
		})
	}
}
