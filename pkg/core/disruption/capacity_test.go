package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

func node(name string, size, free resources.Amount) Node {
	return Node{Name: name, Size: resources.Of(size, size), Free: resources.Of(free, free), Open: true}
}

func need(has, wants resources.Amount) Need {
	return Need{Namespace: "shop", Node: "a", Has: resources.Of(has, has), Wants: resources.Of(wants, wants)}
}

func TestResizeLooksAtTheNodeOfThePod(t *testing.T) {
	r := NewCapacity([]Node{node("a", 1000, 100), node("b", 5000, 5000)}, nil)
	require.Equal(t, RoomFits, r.Resize(need(100, 200)))
	require.Equal(t, RoomFull, r.Resize(need(100, 201)))
	require.Equal(t, RoomTooLarge, r.Resize(need(100, 1001)))
	require.Equal(t, RoomFits, r.Resize(need(2000, 1500)), "what shrinks always fits")
	n := need(100, 9000)
	n.Node = "unknown"
	require.Equal(t, RoomFits, r.Resize(n))
	require.Equal(t, RoomFits, NewCapacity(nil, nil).Resize(need(1, 9999)))
	full := NewCapacity([]Node{{Name: "a", Size: resources.Of(1000, 1000), Free: resources.Of(-5, 500)}}, nil)
	require.Equal(t, RoomFits, full.Resize(Need{Node: "a", Has: resources.Of(300, 300), Wants: resources.Of(200, 400)}), "only memory grows")
}

func TestCapacity_NoMoreThanBesideDaemonsAndStaticPods(t *testing.T) {
	a := node("a", 1000, 600)
	a.Fixed = resources.Of(300, 0)
	r := NewCapacity([]Node{a}, nil)
	require.Equal(t, RoomFits, r.Place(need(100, 700), false))
	require.Equal(t, RoomTooLarge, r.Place(need(100, 701), false))
	require.Equal(t, RoomTooLarge, r.Resize(need(100, 701)))
	require.Equal(t, RoomFull, NewCapacity([]Node{node("a", 1000, 600)}, nil).Resize(need(100, 701)), "small pods may leave")
	daemon := need(200, 900)
	daemon.Bound, daemon.Node = true, "a"
	require.Equal(t, RoomFull, r.Resize(daemon), "it is one of those that are always there")
	daemon = need(200, 901)
	daemon.Bound, daemon.Node = true, "a"
	require.Equal(t, RoomTooLarge, r.Resize(daemon))
}

func TestPlaceLooksForAnyNode(t *testing.T) {
	r := NewCapacity([]Node{node("a", 1000, 0), node("b", 1000, 300)}, nil)
	require.Equal(t, RoomFits, r.Place(need(100, 100), false), "its own place")
	require.Equal(t, RoomFits, r.Place(need(100, 300), false), "the other node")
	require.Equal(t, RoomFull, r.Place(need(100, 301), false))
	require.Equal(t, RoomFits, r.Place(need(100, 301), true), "a node can be added")
	require.Equal(t, RoomTooLarge, r.Place(need(100, 1001), true))
	bound := need(100, 200)
	bound.Bound = true
	require.Equal(t, RoomFull, r.Place(bound, true), "a daemon has no other node")
	bound.Node = "unknown"
	require.Equal(t, RoomFits, r.Place(bound, false))
	more := NewCapacity([]Node{node("a", 1000, 0)}, map[string][]Quota{"full": {{Requests: resources.Of(0, 0)}}}).Growing().Clone()
	require.Equal(t, RoomFits, more.Place(need(100, 1001), false), "a larger node may come")
	require.Equal(t, RoomTooLarge, more.Resize(need(100, 1001)), "but not in the place of this one")
	require.Equal(t, RoomFull, more.Resize(need(100, 200)))
	over := need(100, 200)
	over.Namespace = "full"
	require.Equal(t, RoomOverQuota, more.Place(over, false))
	bound.Node = "a"
	require.Equal(t, RoomFull, more.Place(bound, false), "a daemon stays where it is")
	cordoned := NewCapacity([]Node{{Name: "a", Size: resources.Of(1000, 1000), Free: resources.Of(900, 900)}}, nil)
	require.Equal(t, RoomFull, cordoned.Place(need(100, 100), false), "it would not come back there")
	require.Equal(t, RoomFits, NewCapacity(nil, nil).Place(need(1, 9999), false))
}

func TestQuotas(t *testing.T) {
	r := NewCapacity(nil, map[string][]Quota{"shop": {{Requests: resources.Of(50, 500), Limits: resources.List{}.With(resources.Memory, 10)}}})
	require.Equal(t, RoomFits, r.Resize(need(100, 150)))
	require.Equal(t, RoomOverQuota, r.Resize(need(100, 151)))
	require.Equal(t, RoomOverQuota, r.Place(need(100, 151), true))
	limits := need(100, 100)
	limits.More = resources.Of(999, 10)
	require.Equal(t, RoomFits, r.Resize(limits), "CPU limits are not counted")
	limits.More = resources.Of(0, 11)
	require.Equal(t, RoomOverQuota, r.Resize(limits))
	limits.Namespace = "other"
	require.Equal(t, RoomFits, r.Resize(limits))
	over := NewCapacity(nil, map[string][]Quota{"shop": {{Requests: resources.Of(-5, -5)}}})
	require.Equal(t, RoomFits, over.Resize(need(100, 50)), "a quota that is exceeded does not stop what shrinks")
}

func TestQuotasOfOtherPodsDoNotCount(t *testing.T) {
	r := NewCapacity(nil, map[string][]Quota{"shop": {
		{Requests: resources.Of(50, 50), Scopes: []ScopeRule{{Scope: ScopeTerminating, Operator: ScopeExists}}},
		{Requests: resources.Of(500, 500), Scopes: []ScopeRule{{Scope: ScopeNotTerminating, Operator: ScopeExists}}},
	}})
	server, job := need(100, 200), need(100, 200)
	job.Traits.Terminating = true
	require.Equal(t, RoomFits, r.Resize(server))
	require.Equal(t, RoomOverQuota, r.Resize(job))
	require.Equal(t, RoomFits, r.Place(server, false))
	require.Equal(t, RoomOverQuota, r.Place(job, false))
	require.Equal(t, [resources.Kinds]resources.Amount{policy.Whole, policy.Whole}, r.Part(server))
	require.Equal(t, [resources.Kinds]resources.Amount{policy.Whole / 2, policy.Whole / 2}, r.Part(job))
	server.Wants = resources.Of(600, 600)
	r.Keep(server, false)
	require.Equal(t, RoomOverQuota, r.Resize(need(100, 101)), "nothing is left of that quota")
	job.Wants = resources.Of(150, 150)
	require.Equal(t, RoomFits, r.Resize(job), "and all of the other")
}

// The new pod is created before the old one has left the quota.
func TestAQuotaMustHoldTheSuccessorBesideThePod(t *testing.T) {
	r := func() *Capacity {
		return NewCapacity(nil, map[string][]Quota{"shop": {{Requests: resources.Of(250, 1000), Limits: resources.Of(250, 1000)}}})
	}
	n := need(100, 250)
	require.Equal(t, RoomFits, r().Place(n, false))
	n = need(100, 251)
	require.Equal(t, RoomOverQuota, r().Place(n, false))
	require.Equal(t, RoomFits, r().Resize(n), "a resize takes only what is more")
	n = Need{Namespace: "shop", Node: "a", Has: resources.Of(900, 100), Wants: resources.Of(800, 200)}
	require.Equal(t, RoomOverQuota, r().Place(n, false), "the webhook would cut what shrinks to 250 at the same time")
	n.Has = resources.Of(200, 100)
	n.Wants = resources.Of(200, 200)
	require.Equal(t, RoomFits, r().Place(n, false))
	n.More, n.Limits = resources.Of(1, 0), resources.Of(251, 0)
	require.Equal(t, RoomOverQuota, r().Place(n, false), "limits")
	n.More, n.Limits = resources.Of(0, 1), resources.Of(251, 100)
	require.Equal(t, RoomOverQuota, r().Place(n, false), "limits that stay")
	n = Need{Namespace: "shop", Node: "a", Has: resources.Of(900, 100), Wants: resources.Of(800, 100), Limits: resources.Of(800, 100)}
	require.Equal(t, RoomFits, r().Place(n, false), "what only shrinks comes in when the pod is gone")
	n.Sized = true
	require.Equal(t, RoomOverQuota, r().Place(n, false), "the webhook may cut it to its template")
	require.Equal(t, RoomFits, r().Resize(n), "in place nobody cuts it")

	n = need(100, 200)
	kept := r()
	kept.Keep(n, true)
	n.Wants = resources.Of(110, 110)
	require.Equal(t, RoomOverQuota, kept.Place(n, false), "50 are left")
}

func TestRoomIsPromisedOnce(t *testing.T) {
	r := NewCapacity([]Node{node("a", 1000, 100), node("b", 1000, 300)}, map[string][]Quota{"shop": {{Requests: resources.Of(600, 600)}}})
	before := r.Clone()
	r.Keep(need(100, 200), false)
	require.Equal(t, RoomFull, r.Resize(need(100, 101)))
	require.Equal(t, RoomFits, r.Place(need(100, 250), false))
	r.Keep(need(100, 250), true)
	require.Equal(t, RoomFull, r.Place(need(100, 151), false), "the other node has 50 left")
	require.Equal(t, RoomOverQuota, r.Place(need(100, 251), false), "the quota has 250 left")
	require.Equal(t, RoomFits, before.Resize(need(100, 200)), "a clone is apart")
	bound := need(100, 100)
	bound.Bound = true
	r.Keep(bound, true)
}

// On a node that is sized for its pods, a pod grows by moving to another such node.
func TestPlan_NodesThatFollowTheirPodsAreNeverTooSmall(t *testing.T) {
	quota := Quota{Requests: resources.Of(10, 10<<20)}
	for _, tc := range []struct {
		name   string
		mode   Mode
		free   resources.Amount // free CPU of the node
		quotas map[string][]Quota
		want   string
	}{
		{name: "full, evicted at once", mode: InPlaceOrRecreate, want: "evict p0: ResizeStuck"},
		{name: "mode Recreate", mode: Recreate, want: "evict p0: OutOfBounds"},
		{name: "mode InPlace", mode: InPlace, want: "skip p0: TooLargeForNode"},
		{name: "room for a resize", mode: InPlaceOrRecreate, free: 4000, want: "resize or evict p0: OutOfBounds"},
		{name: "quotas count", mode: Recreate, quotas: map[string][]Quota{"shop": {quota}}, want: "skip p0: QuotaFull"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := deployment(tc.mode, 2, pods(2, func(_ int, p *Pod) { p.Node, p.Footprint = "f1", resources.Of(100, 100<<20) })...)
			node := Node{Name: "f1", FollowsPods: true, Size: resources.Of(tc.free+200, 8<<30), Free: resources.Of(tc.free, 4<<30)}
			r := Plan(View{VPAs: []VPA{*v}, Room: NewCapacity([]Node{node}, tc.quotas)}, State{}, defaults(), noon)
			require.Equal(t, tc.want, told(r)[0])
		})
	}
}
