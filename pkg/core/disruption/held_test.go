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

// A problem of the pod itself precedes the hold reason, except Unchanged.
func TestHeld_ReasonPrecedence(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Pod)
		want   reason.Reason
	}{
		{name: "pod that needs a change", change: func(*Pod) {}, want: reason.RevertBackoff},
		{name: "unchanged pod", change: func(p *Pod) { p.Containers[0] = container(1000, 1000, 1000, 1000) }, want: reason.RevertBackoff},
		{name: "small change", change: func(p *Pod) { p.Containers[0] = container(1000, 1000, 1010, 1000) }, want: reason.SmallChange},
		{
			name: "young pod", change: func(p *Pod) { p.Containers[0] = container(1000, 1000, 1500, 1500); p.Started = noon },
			want: reason.TooYoung,
		},
		{
			name: "empty target", change: func(p *Pod) { p.Containers[0].Target = policy.ContainerTarget{Name: "app"} },
			want: reason.RevertBackoff,
		},
		{name: "pod-level resources", change: func(p *Pod) { p.PodLevel = true }, want: reason.PodLevelResources},
		{name: "boosted pod", change: func(p *Pod) { p.Boosted = true }, want: reason.Boosted},
		{name: "resize in progress", change: func(p *Pod) { p.Resize = ResizeInProgress }, want: reason.RevertBackoff},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := deployment(InPlaceOrRecreate, 2, small("p0"), small("p1"))
			tc.change(&v.Pods[0])
			v.Pods[0].Held = reason.RevertBackoff
			r := planAtNoon(t, v, defaults())
			require.Contains(t, formatPlan(r), "skip p0: "+tc.want.String())
		})
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
