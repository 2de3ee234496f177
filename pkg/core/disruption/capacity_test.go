package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

func node(name string, size, free resources.Amount) Node {
	return Node{Name: name, Allocatable: resources.NewList(size, size), Free: resources.NewList(free, free), AcceptsPods: true}
}

func need(has, wants resources.Amount) Need {
	return Need{Namespace: "shop", Node: "a", Before: resources.NewList(has, has), After: resources.NewList(wants, wants)}
}

func TestCapacity_CheckResizeUsesNodeOfPod(t *testing.T) {
	r := NewCapacity([]Node{node("a", 1000, 100), node("b", 5000, 5000)}, nil)
	require.Equal(t, RoomFits, r.CheckResize(need(100, 200)))
	require.Equal(t, RoomFull, r.CheckResize(need(100, 201)))
	require.Equal(t, RoomTooLarge, r.CheckResize(need(100, 1001)))
	require.Equal(t, RoomFits, r.CheckResize(need(2000, 1500)), "what shrinks always fits")
	n := need(100, 9000)
	n.Node = "unknown"
	require.Equal(t, RoomFits, r.CheckResize(n))
	require.Equal(t, RoomFits, NewCapacity(nil, nil).CheckResize(need(1, 9999)))
	full := NewCapacity([]Node{{Name: "a", Allocatable: resources.NewList(1000, 1000), Free: resources.NewList(-5, 500)}}, nil)
	require.Equal(t, RoomFits, full.CheckResize(Need{Node: "a", Before: resources.NewList(300, 300), After: resources.NewList(200, 400)}), "only memory grows")
}

func TestCapacity_CountsDaemonsAndStaticPods(t *testing.T) {
	a := node("a", 1000, 600)
	a.Fixed = resources.NewList(300, 0)
	r := NewCapacity([]Node{a}, nil)
	require.Equal(t, RoomFits, r.CheckPlacement(need(100, 700), false))
	require.Equal(t, RoomTooLarge, r.CheckPlacement(need(100, 701), false))
	require.Equal(t, RoomTooLarge, r.CheckResize(need(100, 701)))
	require.Equal(t, RoomFull, NewCapacity([]Node{node("a", 1000, 600)}, nil).CheckResize(need(100, 701)), "small pods may leave")
	daemon := need(200, 900)
	daemon.NodeBound, daemon.Node = true, "a"
	require.Equal(t, RoomFull, r.CheckResize(daemon), "it is one of those that are always there")
	daemon = need(200, 901)
	daemon.NodeBound, daemon.Node = true, "a"
	require.Equal(t, RoomTooLarge, r.CheckResize(daemon))
}

func TestCapacity_CheckPlacementUsesAnyNode(t *testing.T) {
	r := NewCapacity([]Node{node("a", 1000, 0), node("b", 1000, 300)}, nil)
	require.Equal(t, RoomFits, r.CheckPlacement(need(100, 100), false), "its own place")
	require.Equal(t, RoomFits, r.CheckPlacement(need(100, 300), false), "the other node")
	require.Equal(t, RoomFull, r.CheckPlacement(need(100, 301), false))
	require.Equal(t, RoomFits, r.CheckPlacement(need(100, 301), true), "a node can be added")
	require.Equal(t, RoomTooLarge, r.CheckPlacement(need(100, 1001), true))
	bound := need(100, 200)
	bound.NodeBound = true
	require.Equal(t, RoomFull, r.CheckPlacement(bound, true), "a daemon has no other node")
	bound.Node = "unknown"
	require.Equal(t, RoomFits, r.CheckPlacement(bound, false))
	more := NewCapacity([]Node{node("a", 1000, 0)}, map[string][]Quota{"full": {{Requests: resources.NewList(0, 0)}}}).WithAutoscaling().Clone()
	require.Equal(t, RoomFits, more.CheckPlacement(need(100, 1001), false), "a larger node may come")
	require.Equal(t, RoomTooLarge, more.CheckResize(need(100, 1001)), "but not in the place of this one")
	require.Equal(t, RoomFull, more.CheckResize(need(100, 200)))
	over := need(100, 200)
	over.Namespace = "full"
	require.Equal(t, RoomOverQuota, more.CheckPlacement(over, false))
	bound.Node = "a"
	require.Equal(t, RoomFull, more.CheckPlacement(bound, false), "a daemon stays where it is")
	cordoned := NewCapacity([]Node{{Name: "a", Allocatable: resources.NewList(1000, 1000), Free: resources.NewList(900, 900)}}, nil)
	require.Equal(t, RoomFull, cordoned.CheckPlacement(need(100, 100), false), "it would not come back there")
	require.Equal(t, RoomFits, NewCapacity(nil, nil).CheckPlacement(need(1, 9999), false))
}

func TestCapacity_Quotas(t *testing.T) {
	r := NewCapacity(nil, map[string][]Quota{"shop": {{Requests: resources.NewList(50, 500), Limits: resources.List{}.With(resources.Memory, 10)}}})
	require.Equal(t, RoomFits, r.CheckResize(need(100, 150)))
	require.Equal(t, RoomOverQuota, r.CheckResize(need(100, 151)))
	require.Equal(t, RoomOverQuota, r.CheckPlacement(need(100, 151), true))
	limits := need(100, 100)
	limits.LimitGrowth = resources.NewList(999, 10)
	require.Equal(t, RoomFits, r.CheckResize(limits), "CPU limits are not counted")
	limits.LimitGrowth = resources.NewList(0, 11)
	require.Equal(t, RoomOverQuota, r.CheckResize(limits))
	limits.Namespace = "other"
	require.Equal(t, RoomFits, r.CheckResize(limits))
	over := NewCapacity(nil, map[string][]Quota{"shop": {{Requests: resources.NewList(-5, -5)}}})
	require.Equal(t, RoomFits, over.CheckResize(need(100, 50)), "a quota that is exceeded does not stop what shrinks")
}

func TestCapacity_RespectsQuotaScopes(t *testing.T) {
	r := NewCapacity(nil, map[string][]Quota{"shop": {
		{Requests: resources.NewList(50, 50), Scopes: []ScopeRule{{Scope: ScopeTerminating, Operator: ScopeExists}}},
		{Requests: resources.NewList(500, 500), Scopes: []ScopeRule{{Scope: ScopeNotTerminating, Operator: ScopeExists}}},
	}})
	server, job := need(100, 200), need(100, 200)
	job.Traits.Terminating = true
	require.Equal(t, RoomFits, r.CheckResize(server))
	require.Equal(t, RoomOverQuota, r.CheckResize(job))
	require.Equal(t, RoomFits, r.CheckPlacement(server, false))
	require.Equal(t, RoomOverQuota, r.CheckPlacement(job, false))
	require.Equal(t, [resources.Kinds]resources.Amount{policy.FullFraction, policy.FullFraction}, r.FittingFraction(server))
	require.Equal(t, [resources.Kinds]resources.Amount{policy.FullFraction / 2, policy.FullFraction / 2}, r.FittingFraction(job))
	server.After = resources.NewList(600, 600)
	r.Reserve(server, false)
	require.Equal(t, RoomOverQuota, r.CheckResize(need(100, 101)), "nothing is left of that quota")
	job.After = resources.NewList(150, 150)
	require.Equal(t, RoomFits, r.CheckResize(job), "and all of the other")
}

// The new pod is created before the old one has left the quota.
func TestCapacity_QuotaHoldsReplacementAndPod(t *testing.T) {
	r := func() *Capacity {
		return NewCapacity(nil, map[string][]Quota{"shop": {{Requests: resources.NewList(250, 1000), Limits: resources.NewList(250, 1000)}}})
	}
	n := need(100, 250)
	require.Equal(t, RoomFits, r().CheckPlacement(n, false))
	n = need(100, 251)
	require.Equal(t, RoomOverQuota, r().CheckPlacement(n, false))
	require.Equal(t, RoomFits, r().CheckResize(n), "a resize takes only what is more")
	n = Need{Namespace: "shop", Node: "a", Before: resources.NewList(900, 100), After: resources.NewList(800, 200)}
	require.Equal(t, RoomOverQuota, r().CheckPlacement(n, false), "the webhook would cut what shrinks to 250 at the same time")
	n.Before = resources.NewList(200, 100)
	n.After = resources.NewList(200, 200)
	require.Equal(t, RoomFits, r().CheckPlacement(n, false))
	n.LimitGrowth, n.Limits = resources.NewList(1, 0), resources.NewList(251, 0)
	require.Equal(t, RoomOverQuota, r().CheckPlacement(n, false), "limits")
	n.LimitGrowth, n.Limits = resources.NewList(0, 1), resources.NewList(251, 100)
	require.Equal(t, RoomOverQuota, r().CheckPlacement(n, false), "limits that stay")
	n = Need{Namespace: "shop", Node: "a", Before: resources.NewList(900, 100), After: resources.NewList(800, 100), Limits: resources.NewList(800, 100)}
	require.Equal(t, RoomFits, r().CheckPlacement(n, false), "what only shrinks comes in when the pod is gone")
	n.SizedByVPA = true
	require.Equal(t, RoomOverQuota, r().CheckPlacement(n, false), "the webhook may cut it to its template")
	require.Equal(t, RoomFits, r().CheckResize(n), "in place nobody cuts it")

	n = need(100, 200)
	kept := r()
	kept.Reserve(n, true)
	n.After = resources.NewList(110, 110)
	require.Equal(t, RoomOverQuota, kept.CheckPlacement(n, false), "50 are left")
}

func TestCapacity_ReservesRoomOnce(t *testing.T) {
	r := NewCapacity([]Node{node("a", 1000, 100), node("b", 1000, 300)}, map[string][]Quota{"shop": {{Requests: resources.NewList(600, 600)}}})
	before := r.Clone()
	r.Reserve(need(100, 200), false)
	require.Equal(t, RoomFull, r.CheckResize(need(100, 101)))
	require.Equal(t, RoomFits, r.CheckPlacement(need(100, 250), false))
	r.Reserve(need(100, 250), true)
	require.Equal(t, RoomFull, r.CheckPlacement(need(100, 151), false), "the other node has 50 left")
	require.Equal(t, RoomOverQuota, r.CheckPlacement(need(100, 251), false), "the quota has 250 left")
	require.Equal(t, RoomFits, before.CheckResize(need(100, 200)), "a clone is apart")
	bound := need(100, 100)
	bound.NodeBound = true
	r.Reserve(bound, true)
}
