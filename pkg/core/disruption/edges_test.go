package disruption

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestResize_TimeoutIsInclusive(t *testing.T) {
	gives := func(p *Pod) {
		p.Containers[0].Actual.Limits, p.Containers[0].Spec.Limits = resources.NewList(500, 400<<20), resources.NewList(500, 200<<20)
	}
	for _, tc := range []struct {
		name   string
		state  ResizeState
		change func(*Pod)
		limit  time.Duration
	}{
		{name: "deferred resize", state: ResizeDeferred, limit: DeferredTimeout},
		{name: "resize in progress", state: ResizeInProgress, limit: InProgressTimeout},
		{name: "failed decrease of a memory limit in use", state: ResizeError, change: gives, limit: InProgressTimeout},
		{name: "accepted resize that the node never reports", state: NotResizing, change: acceptResize, limit: InProgressTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, mode := range []Mode{InPlaceOrRecreate, Recreate} {
				v := deployment(mode, 2, pods(2, nil)...)
				p := &v.Pods[0]
				if tc.change != nil {
					tc.change(p)
				}
				p.Resize = tc.state
				first := func(age time.Duration) string {
					p.ResizeSince = noon.Add(-age)
					v.Pods[1].Containers[0].Actual = granted(v.Pods[1])
					return formatPlan(planAtNoon(t, v, defaults()))[0]
				}
				if tc.state == NotResizing && mode == Recreate {
					require.Contains(t, first(24*time.Hour), "skip ", "mode Recreate asks no node")
					continue
				}
				require.Contains(t, first(tc.limit), "skip ", "mode %d", mode)
				require.Equal(t, "evict p0: ResizeStuck", first(tc.limit+1), "mode %d", mode)
			}
		})
	}
}

func TestEvictable_RespectsBudget(t *testing.T) {
	v := deployment(Recreate, 2, pods(2, nil)...)
	s := DecisionInput{Mode: v.Mode, Budget: NewBudget(v, defaults()), Config: defaults(), Now: noon}
	require.Empty(t, s.Evictable(&v.Pods[0]))
	s.Budget.Spend(&v.Pods[0])
	require.Equal(t, reason.BudgetSpent, s.Evictable(&v.Pods[1]))
	v.Pods[1].Resize = ResizeInfeasible
	require.Equal(t, reason.BudgetSpent, s.Evictable(&v.Pods[1]))
	v.Pods[1].Resize, v.Pods[1].ResizeSince = ResizeDeferred, noon
	require.Equal(t, reason.Deferred, s.Evictable(&v.Pods[1]))
	v.Pods[1].Pending, v.Pods[1].Ready = true, false
	require.Empty(t, s.Evictable(&v.Pods[1]), "a pending pod costs nothing, whatever its resize")
}

func TestBudget_CountsReadyPods(t *testing.T) {
	v := deployment(Recreate, 6, pods(6, func(i int, p *Pod) { p.Ready = i >= 2 })...)
	c := defaults()
	b := NewBudget(v, c)
	b.Spend(&v.Pods[0])
	require.Empty(t, b.Denies(&v.Pods[2]), "a pod that was not ready is none of the ready ones")
	b.Spend(&v.Pods[2])
	require.Equal(t, reason.BudgetSpent, b.Denies(&v.Pods[3]), "three ready ones stay")
	require.Empty(t, b.Denies(&v.Pods[1]))
	b.Spend(&v.Pods[1])
	v.Pods[1].Pending = true
	before := *b.ownerOf(&v.Pods[1])
	b.Spend(&v.Pods[1])
	require.Equal(t, before, *b.ownerOf(&v.Pods[1]), "a pending pod costs nothing")
	stray := small("stray")
	for _, group := range []int{-1, 1} {
		stray.Group = group
		b.Spend(&stray)
		b.addRestarting(&stray, RestartHolder{UID: stray.UID})
		require.Equal(t, reason.NoOwner, b.Denies(&stray))
	}
}

// Other clients resize pods, too, so several restarts can be pending.
func TestRestart_PendingRestartsBlockEachOther(t *testing.T) {
	v := restartingDeployment(4, func(i int, p *Pod) {
		if i < 2 {
			acceptResize(p)
			p.Containers[0].Target.Requests = resources.NewList(3000, 3000<<20) // the current target
		}
	})
	v.Mode = InPlace
	c := defaults()
	c.Tolerance = 1
	require.Equal(t, []string{"resize p0: OutOfBounds", "skip p1: RestartInProgress"}, formatPlan(planAtNoon(t, v, c))[:2], "the first may get another target: it restarts anyway")
	v.Pods[0].Resize, v.Pods[1].Resize = ResizeInProgress, ResizeInProgress
	v.Pods[0].ResizeSince, v.Pods[1].ResizeSince = noon.Add(-time.Minute), noon.Add(-2*time.Minute)
	require.Equal(t, []string{"resize p1: Retry"}, formatPlan(planAtNoon(t, v, c))[:1])
	v.Pods[1].Containers[0].Actual, v.Pods[1].Resize = v.Pods[1].Containers[0].Spec, NotResizing
	require.Equal(t, "resize p0: Retry", formatPlan(planAtNoon(t, v, c))[0], "one alone may get another target")
}

func TestPartialResize_OnlyOnFullNode(t *testing.T) {
	v := deploymentOnNode(InPlaceOrRecreate, 2)
	for _, c := range []Config{defaults(), capToRoom()} {
		r := Plan(View{VPAs: []VPA{*v}, Room: twoNodes(4, 16)}, State{}, c, noon)
		require.True(t, r.Actions[0].MayEvict, "it is not cut, so it may be evicted if it is refused")
	}
	tight := NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Allocatable: resources.NewList(9000, 9<<30), Free: resources.NewList(450, 9<<30)},
		{Name: "n2", AcceptsPods: true, Allocatable: resources.NewList(9000, 9<<30), Free: resources.NewList(9000, 9<<30)}}, nil)
	r := Plan(View{VPAs: []VPA{*v}, Room: tight}, State{}, capToRoom(), noon)
	require.False(t, r.Actions[0].MayEvict, "an eviction would not be cut")
}

func TestOOMKill_DoesNotChangeLimitsAlone(t *testing.T) {
	for memory, want := range map[resources.Amount]reason.Reason{1000: reason.SmallChange, 900: ""} {
		p := small("p0")
		p.Containers[0] = container(1000, memory, 1000, 1000)
		p.Containers[0].Target.Limits = resources.NewList(2000, 2000<<20)
		p.Containers[0].OOM = OOM{Started: noon.Add(-2 * time.Minute), Ended: noon.Add(-time.Minute)}
		require.Equal(t, want, Assess(deployment(Recreate, 1), &p, defaults(), noon).Reason)
	}
}
