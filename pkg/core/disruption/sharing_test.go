package disruption

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// crowdedNode returns node n1 with the given free millicores, and n2 with room for any pod.
func crowdedNode(cpu resources.Amount) *Capacity {
	large := resources.NewList(100_000, 1<<40)
	return NewCapacity([]Node{{Name: "n1", Allocatable: large, Free: resources.NewList(cpu, 1<<40), AcceptsPods: true}, {Name: "n2", Allocatable: large, Free: large, AcceptsPods: true}}, nil)
}

func onNode(p *Pod) {
	p.Node, p.Footprint = "n1", p.Containers[0].Actual.Requests
}

// A resize that does not fit is sent once, so that the node can grant it later. With onlyFitting it
// is not sent.
func TestResize_OnlyFittingSkipsFullNode(t *testing.T) {
	v := deployment(InPlace, 2, pods(2, func(_ int, p *Pod) { onNode(p) })...)
	plan := func(c Config) []string {
		return formatPlan(Plan(View{VPAs: []VPA{*v}, Room: crowdedNode(900)}, State{}, c, noon))
	}
	c := defaults()
	c.FreeResizes = true
	require.Equal(t, []string{"resize p0: OutOfBounds", "resize p1: OutOfBounds"}, plan(c))
	c.onlyFitting = true
	require.Equal(t, []string{"resize p0: OutOfBounds", "skip p1: NodeFull"}, plan(c), "the first one takes all there is")
}

func TestShareEviction_RespectsBudgetAndHolds(t *testing.T) {
	leaving := func(ready int, changes ...func(i int, p *Pod)) *VPA {
		return deployment(InPlaceOrRecreate, 4, pods(4, func(i int, p *Pod) {
			onNode(p)
			p.Containers[0] = container(1000, 1000, 1000, 1000)
			p.Ready = i < ready
			if i < 3 {
				p.Share = &Share{Leaves: true}
			}
			for _, change := range changes {
				change(i, p)
			}
		})...)
	}
	plan := func(v *VPA, c Config) []string {
		return formatPlan(Plan(View{VPAs: []VPA{*v}, Room: crowdedNode(0)}, State{}, c, noon))
	}
	require.Equal(t, []string{"evict p0: NodeCrowded", "skip p3: Unchanged", "skip p1: RecentlyEvicted", "skip p2: RecentlyEvicted"}, plan(leaving(4), defaults()))

	generous := defaults()
	generous.Tolerance = 1
	require.Equal(t, []string{"evict p1: NodeCrowded", "skip p3: Unchanged", "skip p0: NoBudget", "skip p2: RecentlyEvicted"}, plan(leaving(1), generous),
		"the last one that is ready stays")
	inPlace := leaving(4)
	inPlace.Mode, inPlace.Ungated = InPlace, true
	require.Equal(t, []string{"skip p3: Unchanged", "skip p0: EvictionNotAllowed", "skip p1: EvictionNotAllowed", "skip p2: EvictionNotAllowed"}, plan(inPlace, defaults()))
	for _, why := range []reason.Reason{reason.OutsideWindow, reason.EvictionNotAllowed, reason.NoRecord} {
		require.Contains(t, plan(leaving(4, func(_ int, p *Pod) { p.Held = why }), defaults()), "skip p0: "+string(why))
	}
	held := func(i int, p *Pod) { p.Held = []reason.Reason{reason.UnderObservation, reason.CoolingDown, "", ""}[i] }
	require.Equal(t, []string{"evict p1: NodeCrowded", "skip p3: Unchanged", "skip p0: UnderObservation", "skip p2: RecentlyEvicted"}, plan(leaving(4, held), defaults()),
		"it has nothing to do with a cooldown")
}

func TestShareEviction_NeedsAnotherNode(t *testing.T) {
	large := resources.NewList(100_000, 1<<40)
	crowded := Node{Name: "n1", Allocatable: large, Free: resources.NewList(5000, 1<<40), AcceptsPods: true}
	other := func(cpu resources.Amount) Node {
		return Node{Name: "n2", Allocatable: large, Free: resources.NewList(cpu, 1<<40), AcceptsPods: true}
	}
	for _, tc := range []struct {
		name  string
		room  *Capacity
		leave func(p *Pod)
		added bool // Config.Autoscaled
		want  []string
	}{
		{name: "room on another node", room: NewCapacity([]Node{crowded, other(3000)}, nil), want: []string{"evict p0: NodeCrowded"}},
		{name: "no other node", room: NewCapacity([]Node{crowded}, nil), want: []string{"skip p0: NodeFull"}},
		{name: "other node is full", room: NewCapacity([]Node{crowded, other(999)}, nil), want: []string{"skip p0: NodeFull"}},
		{
			name: "autoscaler adds no node because the pod fits on its own",
			room: NewCapacity([]Node{crowded}, nil).WithAutoscaling(),
			want: []string{"skip p0: NodeFull"},
		},
		{
			name: "assumed autoscaler adds no node either",
			room: NewCapacity([]Node{crowded}, nil), added: true,
			want: []string{"skip p0: NodeFull"},
		},
		{
			name:  "autoscaler adds a node",
			room:  crowdedNode(0).WithAutoscaling(),
			leave: func(p *Pod) { p.Containers[0] = container(1000, 1000, 3000, 1000) },
			want:  []string{"evict p0: NodeCrowded"},
		},
		{
			name:  "pod bound to its node",
			room:  NewCapacity([]Node{crowded, other(3000)}, nil),
			leave: func(p *Pod) { p.NodeBound = true },
			want:  []string{"skip p0: NodeFull"},
		},
		{
			name:  "pod bound to an unknown node",
			room:  NewCapacity([]Node{other(3000)}, nil),
			leave: func(p *Pod) { p.NodeBound = true },
			want:  []string{"skip p0: NodeFull"},
		},
		{
			name:  "pod bound to its node without capacity checks",
			leave: func(p *Pod) { p.NodeBound = true },
			want:  []string{"skip p0: NodeFull"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := deployment(InPlaceOrRecreate, 2, pods(2, func(i int, p *Pod) {
				p.Containers[0] = container(1000, 1000, 1000, 1000)
				if i == 0 {
					p.Share = &Share{Leaves: true}
					if tc.leave != nil {
						tc.leave(p)
					}
				}
				onNode(p)
			})...)
			c := defaults()
			c.Autoscaled = tc.added
			r := Plan(View{VPAs: []VPA{*v}, Room: tc.room}, State{}, c, noon)
			require.Equal(t, append(tc.want, "skip p1: Unchanged"), formatSorted(r))
		})
	}
}

func formatSorted(r Result) []string {
	all := formatPlan(r)
	slices.Sort(all)
	return all
}

func TestShareEviction_ReservesRoomElsewhere(t *testing.T) {
	room := NewCapacity([]Node{{Name: "n1", Allocatable: resources.NewList(9000, 9000), Free: resources.NewList(5000, 5000), AcceptsPods: true}, {Name: "n2", Allocatable: resources.NewList(9000, 9000), Free: resources.NewList(1500, 5000), AcceptsPods: true}}, nil)
	need := Need{Node: "n1", Leaves: true, Before: resources.NewList(500, 1000), After: resources.NewList(1000, 1000)}
	require.Equal(t, RoomFits, room.CheckPlacement(need, false))
	room.Reserve(need, true)
	require.Equal(t, RoomFull, room.CheckPlacement(need, false))
}

func TestShareEviction_OnePerOwnerAndHour(t *testing.T) {
	state, at := State{}, noon
	for minute := range 121 {
		at = noon.Add(time.Duration(minute) * time.Minute)
		v := deployment(InPlaceOrRecreate, 4, pods(4, func(_ int, p *Pod) {
			p.Containers[0], p.Share, p.UID = container(1000, 1000, 1000, 1000), &Share{Leaves: true}, p.Name+at.String()
			onNode(p)
		})...)
		v.Groups[0].Key = "web"
		r := Plan(View{VPAs: []VPA{*v}, Room: crowdedNode(0)}, state, defaults(), at)
		state = r.State
		if minute%60 != 0 {
			require.Empty(t, r.Actions, at)
			require.Equal(t, reason.RecentlyEvicted, r.Skipped[0].Reason)
			continue
		}
		require.Len(t, r.Actions, 1, at)
		if minute == 0 { // a refused eviction is retried
			state.Record(r.Actions[0], Prevented, at)
			r = Plan(View{VPAs: []VPA{*v}, Room: crowdedNode(0)}, state, defaults(), at)
			require.Len(t, r.Actions, 1)
			state = r.State
		}
		state.Record(r.Actions[0], Done, at)
	}
	require.Empty(t, state.Next(at.Add(time.Hour)).LastCrowdEviction, "then it is forgotten")
}

func sharingPod(p *Pod) {
	whole := container(300, 1000, 1000, 2000)
	p.Share, p.Containers[0] = &Share{Kinds: [resources.Kinds]bool{resources.CPU: true}, Peak: []policy.ContainerTarget{whole.Target}}, whole
	f := &p.Containers[0].Target
	f.Requests, f.Bounds.Lower, f.Bounds.Target, f.Bounds.Upper = f.Requests.Without(resources.CPU), f.Bounds.Lower.Without(resources.CPU), f.Bounds.Target.Without(resources.CPU), f.Bounds.Upper.Without(resources.CPU)
	onNode(p)
}

func TestEviction_SharingPodNeedsRoomForPeak(t *testing.T) {
	size := resources.NewList(100_000, 1<<40)
	room := func(own, other resources.Amount) *Capacity {
		return NewCapacity([]Node{{Name: "n1", Allocatable: size, Free: resources.NewList(own, 1<<40), AcceptsPods: true}, {Name: "n2", Allocatable: size, Free: resources.NewList(other, 1<<40), AcceptsPods: true}}, nil)
	}
	for _, tc := range []struct {
		name       string
		own, other resources.Amount
		want       []string
	}{
		{name: "room on its own node", own: 700, other: 0, want: []string{"evict p0: Changed", "skip p1: BudgetSpent"}},
		{name: "room on another node", own: 0, other: 1000, want: []string{"evict p0: Changed", "skip p1: BudgetSpent"}},
		{name: "room only for the share", own: 699, other: 999, want: []string{"skip p0: NodeFull", "skip p1: NodeFull"}},
		{name: "room only for the share on another node", own: 0, other: 300, want: []string{"skip p0: NodeFull", "skip p1: NodeFull"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := deployment(Recreate, 2, pods(2, func(_ int, p *Pod) { sharingPod(p) })...)
			require.Equal(t, tc.want, formatPlan(Plan(View{VPAs: []VPA{*v}, Room: room(tc.own, tc.other)}, State{}, defaults(), noon)))
		})
	}
	two := deployment(Recreate, 8, pods(8, func(_ int, p *Pod) { sharingPod(p) })...)
	evicted := Plan(View{VPAs: []VPA{*two}, Room: room(700, 1000)}, State{}, defaults(), noon).Actions
	require.Len(t, evicted, 2, "no two are promised the same room")

	p := pods(1, func(_ int, p *Pod) { sharingPod(p) })[0]
	p.InitFootprint = resources.NewList(1500, 0)
	need := p.Need()
	require.Equal(t, resources.NewList(1500, 2000<<20), need.NewPod, "an init container that asks for more")
	inPlace := deployment(InPlaceOrRecreate, 2, pods(2, func(_ int, p *Pod) { sharingPod(p) })...)
	c := defaults()
	c.FreeResizes = true
	require.Equal(t, []string{"resize p0: Changed", "resize p1: Changed"}, withoutEvict(formatPlan(Plan(View{VPAs: []VPA{*inPlace}, Room: room(0, 0)}, State{}, c, noon))),
		"a resize in place needs no more of what it shares")
}

func withoutEvict(lines []string) []string {
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], " or evict", "")
	}
	return lines
}

func TestShare_RefusedShareDoesNotEvict(t *testing.T) {
	for _, tc := range []struct {
		name   string
		resize ResizeState
		change func(p *Pod)
		want   string
	}{
		{name: "deferred share", resize: ResizeDeferred, change: func(*Pod) {}, want: "skip p0: Deferred"},
		{name: "infeasible share", resize: ResizeInfeasible, change: func(*Pod) {}, want: "skip p0: Infeasible"},
		{
			name: "deferred share and memory request", resize: ResizeDeferred,
			change: func(p *Pod) { p.Containers[0].Spec.Requests = resources.NewList(600, 1500<<20) },
			want:   "evict p0: ResizeStuck",
		},
		{
			name: "deferred share and memory limit", resize: ResizeDeferred,
			change: func(p *Pod) { p.Containers[0].Spec.Limits = resources.NewList(0, 1500<<20) },
			want:   "evict p0: ResizeStuck",
		},
		{name: "pod that does not share", resize: ResizeDeferred, change: func(p *Pod) { p.Share = nil }, want: "evict p0: ResizeStuck"},
		{
			name: "spec without another request", resize: ResizeDeferred,
			change: func(p *Pod) { p.Containers[0].Spec = p.Containers[0].Actual },
			want:   "evict p0: ResizeStuck",
		},
		{
			name: "unready pod after an OOM kill", resize: ResizeDeferred,
			change: func(p *Pod) {
				p.Ready, p.Containers[0].OOM = false, OOM{noon.Add(-time.Hour), noon.Add(-time.Minute)}
			},
			want: "evict p0: ResizeStuck",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, mode := range []Mode{InPlaceOrRecreate, Recreate} {
				v := deployment(mode, 3, pods(3, func(i int, p *Pod) {
					sharingPod(p)
					if i > 0 {
						p.Containers[0], p.Share = container(1000, 1000, 1000, 1000), nil
						return
					}
					p.Resize, p.ResizeSince = tc.resize, noon.Add(-time.Hour)
					p.Containers[0].Spec.Requests = resources.NewList(600, 1000<<20)
					tc.change(p)
				})...)
				require.Contains(t, formatPlan(planAtNoon(t, v, defaults())), tc.want, "%v", mode)
			}
		})
	}
}

// Recent evictions for shares do not matter.
func TestShare_RefusedMemoryAfterOOMKillEvicts(t *testing.T) {
	starving := func(why reason.Reason, changes ...func(i int, p *Pod)) *VPA {
		return deployment(InPlaceOrRecreate, 4, pods(4, func(i int, p *Pod) {
			onNode(p)
			p.Containers[0] = container(1000, 1000, 1000, 1000)
			if i == 2 {
				p.Share = &Share{MayEvict: true, Cause: ShareReverted, Target: []policy.ContainerTarget{p.Containers[0].Target}, Skip: why}
			}
			for _, change := range changes {
				change(i, p)
			}
		})...)
	}
	plan := func(v *VPA) []string {
		return formatSorted(Plan(View{VPAs: []VPA{*v}, Room: crowdedNode(0)}, State{}, defaults(), noon))
	}
	for why, evicted := range map[reason.Reason]bool{
		reason.NodeFull: true, reason.TooLargeForNode: true, reason.Infeasible: true, reason.ClassWouldChange: true, reason.BackingOff: true,
		"": false, reason.QuotaFull: false, reason.Deferred: false, reason.ResizeFailed: false, reason.WaitingForNode: false, reason.HasShare: false,
	} {
		require.Equal(t, evicted, slices.Contains(plan(starving(why)), "evict p2: MemoryRefused"), why)
	}
	for after, evicted := range map[time.Duration]bool{DeferredTimeout: false, DeferredTimeout + time.Second: true} {
		v := starving(reason.Deferred, func(_ int, p *Pod) { p.Resize, p.ResizeSince = ResizeDeferred, noon.Add(-after) })
		require.Equal(t, evicted, slices.Contains(plan(v), "evict p2: MemoryRefused"), after)
	}
	leaving := func(i int, p *Pod) {
		if i == 0 {
			p.Share = &Share{Leaves: true}
		}
	}
	v := starving(reason.NodeFull, leaving)
	require.Contains(t, plan(v), "evict p2: MemoryRefused")
	require.Contains(t, formatPlan(Plan(View{VPAs: []VPA{*v}, Room: crowdedNode(0)}, State{LastCrowdEviction: map[string]time.Time{"owner": noon}}, defaults(), noon)), "evict p2: MemoryRefused")
	for skipReason, change := range map[reason.Reason]func(i int, p *Pod){
		reason.NoBudget:         func(i int, p *Pod) { p.Ready = i == 2 },
		reason.OutsideWindow:    func(_ int, p *Pod) { p.Held = reason.OutsideWindow },
		reason.UnderObservation: func(_ int, p *Pod) { p.Held = reason.UnderObservation },
		reason.NodeFull:         func(_ int, p *Pod) { p.NodeBound = true },
	} {
		require.Contains(t, plan(starving(reason.NodeFull, change)), "skip p2: "+string(skipReason))
	}
	v = starving(reason.NodeFull)
	v.Mode, v.Ungated = InPlace, true
	require.Contains(t, plan(v), "skip p2: EvictionNotAllowed")
}
