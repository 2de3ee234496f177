package disruption

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

func withOOMKill(p *Pod) {
	p.Containers[0].OOM = OOM{Started: noon.Add(-5 * time.Hour), Ended: noon.Add(-time.Hour)}
}

func TestHeld_KeepsReasonAndUsesNoBudget(t *testing.T) {
	for _, mode := range []Mode{Recreate, InPlaceOrRecreate, InPlace} {
		v := deployment(mode, 4, pods(4, func(i int, p *Pod) {
			if i < 3 {
				p.Held = reason.Reason([]string{"NotInCanary", "CoolingDown", "UnderObservation"}[i])
			}
		})...)
		r := planAtNoon(t, v, defaults())
		require.Len(t, r.Actions, 1, mode)
		require.Equal(t, "p3", r.Actions[0].Pod, "those that are held before it take nothing of what it needs")
		require.Equal(t, []string{"skip p0: NotInCanary", "skip p1: CoolingDown", "skip p2: UnderObservation"}, formatPlan(r)[1:], mode)
	}
}

// A problem of the pod itself precedes the hold reason, except Unchanged.
func TestHeld_ReasonPrecedence(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Pod)
		want   reason.Reason
	}{
		"to be changed":         {func(*Pod) {}, reason.RevertBackoff},
		"unchanged":             {func(p *Pod) { p.Containers[0] = container(1000, 1000, 1000, 1000) }, reason.RevertBackoff},
		"a small change":        {func(p *Pod) { p.Containers[0] = container(1000, 1000, 1010, 1000) }, reason.SmallChange},
		"too young":             {func(p *Pod) { p.Containers[0] = container(1000, 1000, 1500, 1500); p.Started = noon }, reason.TooYoung},
		"nothing is left of it": {func(p *Pod) { p.Containers[0].Target = policy.ContainerTarget{Name: "app"} }, reason.RevertBackoff},
		"sizes of the pod":      {func(p *Pod) { p.PodLevel = true }, reason.PodLevelResources},
		"held, and boosted":     {func(p *Pod) { p.Boosted = true }, reason.Boosted},
		"held, and not free":    {func(p *Pod) { p.Resize = ResizeInProgress }, reason.RevertBackoff},
	} {
		v := deployment(InPlaceOrRecreate, 2, small("p0"), small("p1"))
		c.change(&v.Pods[0])
		v.Pods[0].Held = reason.RevertBackoff
		r := planAtNoon(t, v, defaults())
		require.Contains(t, formatPlan(r), "skip p0: "+c.want.String(), name)
	}
	v := deployment(InPlaceOrRecreate, 2, pods(2, func(_ int, p *Pod) { p.Containers[0] = container(1000, 1000, 1000, 1000) })...)
	require.Equal(t, []string{"skip p0: Unchanged", "skip p1: Unchanged"}, formatPlan(planAtNoon(t, v, defaults())), "nobody holds them")
}

func TestHeld_AllowsOnlyOOMResize(t *testing.T) {
	held := func(changes ...func(*Pod)) *VPA {
		return deployment(InPlaceOrRecreate, 4, pods(4, func(i int, p *Pod) {
			p.Held = reason.CoolingDown
			if i == 0 {
				p.MemoryOnly = true
				for _, change := range changes {
					change(p)
				}
			}
		})...)
	}
	none := []string{"skip p0: CoolingDown", "skip p1: CoolingDown", "skip p2: CoolingDown", "skip p3: CoolingDown"}
	require.Equal(t, none, formatPlan(planAtNoon(t, held(), defaults())), "it was not killed")
	require.Equal(t, none, formatPlan(planAtNoon(t, held(withOOMKill, func(p *Pod) { p.MemoryOnly = false }), defaults())), "its rollout does not allow that")
	require.Equal(t, none, formatPlan(planAtNoon(t, held(withOOMKill, func(p *Pod) {
		p.Containers[0].Target.Requests = resources.NewList(1000, 50<<20)
	}), defaults())), "it would get less memory")

	for _, ready := range []bool{true, false} {
		v := held(withOOMKill, func(p *Pod) { p.Ready = ready })
		v.Pods[0].Containers = append(v.Pods[0].Containers, container(100, 100, 1000, 1000)) // was not killed
		v.Pods[0].Containers[1].Actual.Name, v.Pods[0].Containers[1].Spec.Name, v.Pods[0].Containers[1].Target.Name = "proxy", "proxy", "proxy"
		before := v.Pods[0].Containers[0].Target
		r := planAtNoon(t, v, defaults())
		require.Len(t, r.Actions, 1)
		require.Equal(t, "p0", r.Actions[0].Pod)
		require.False(t, r.Actions[0].Evict)
		for _, c := range r.Actions[0].Containers {
			want := resources.List{}
			if c.Name == "app" {
				want = want.With(resources.Memory, 1000<<20)
			}
			require.Equal(t, want, c.Requests, c.Name)
			require.Empty(t, c.Limits)
		}
		require.Equal(t, before, v.Pods[0].Containers[0].Target, "the view stays as it is")
	}
}

func TestInPlace_PolicyModeNeedsNoFeatureGate(t *testing.T) {
	c := defaults()
	c.InPlaceMode = false
	v := deployment(InPlace, 2, pods(2, nil)...)
	require.Equal(t, []string{"skip p0: ModeNotEnabled", "skip p1: ModeNotEnabled"}, formatPlan(planAtNoon(t, v, c)))
	v.Ungated = true
	require.Contains(t, formatPlan(planAtNoon(t, v, c)), "resize p0: OutOfBounds")
}
