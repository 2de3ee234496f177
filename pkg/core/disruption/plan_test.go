package disruption

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func defaults() Config {
	return Config{MinReplicas: 2, Tolerance: 0.5, Threshold: 0.1, Lifetime: 12 * time.Hour, QuickOOMTime: 10 * time.Minute, InPlaceMode: true}
}

// container has current and target requests in millicores and MiB. Requests below half or above
// twice the target are out of bounds.
func container(cpu, memory, wantCPU, wantMemory resources.Amount) Container {
	target := resources.NewList(wantCPU, wantMemory<<20)
	has := policy.Container{Name: "app", Requests: resources.NewList(cpu, memory<<20)}
	return Container{Observed: true, Actual: has, Spec: has, Target: policy.ContainerTarget{Name: "app", Requests: target,
		Bounds: resources.Bounds{Lower: resources.NewList(wantCPU/2, wantMemory<<19), Target: target, Upper: resources.NewList(2*wantCPU, wantMemory<<21)}}}
}

func small(name string) Pod {
	return Pod{Namespace: "shop", Name: name, UID: "uid-" + name, Ready: true, Started: noon.Add(-24 * time.Hour),
		Containers: []Container{container(100, 100, 1000, 1000)}}
}

func deployment(mode Mode, replicas int, pods ...Pod) *VPA {
	return &VPA{Namespace: "shop", Name: "web", Mode: mode, Groups: []Group{{Replicas: replicas}}, Pods: pods}
}

func pods(n int, change func(i int, p *Pod)) []Pod {
	all := make([]Pod, n)
	for i := range all {
		all[i] = small(fmt.Sprintf("p%d", i))
		if change != nil {
			change(i, &all[i])
		}
	}
	return all
}

func planAtNoon(t *testing.T, v *VPA, c Config) Result {
	t.Helper()
	return Plan(View{VPAs: []VPA{*v}}, State{}, c, noon)
}

func formatPlan(r Result) (lines []string) {
	for _, a := range r.Actions {
		verb := "resize"
		if a.Evict {
			verb = "evict"
		}
		if a.MayEvict {
			verb += " or evict"
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s", verb, a.Pod, a.Cause))
	}
	for _, s := range r.Skipped {
		lines = append(lines, fmt.Sprintf("skip %s: %s", s.Pod, s.Reason))
	}
	return lines
}

func TestInPlace_WaitsForNode(t *testing.T) {
	asked := func(p *Pod) { p.Containers[0].Spec.Requests = p.Containers[0].Target.Requests }
	v := deployment(InPlace, 8,
		pods(8, func(i int, p *Pod) {
			switch i {
			case 0:
				p.Resize = ResizeDeferred
				asked(p)
			case 1:
				p.Resize = ResizeDeferred // another target was requested
			case 2:
				p.Pending, p.Ready = true, false
			case 3:
				p.Resize = ResizeInfeasible
				asked(p)
			case 4:
				p.Resize = ResizeError
				asked(p)
			case 5:
				asked(p)
			case 6:
				p.Resize = ResizeInProgress
				asked(p)
			}
		})...)
	c := defaults()
	c.Tolerance = 1
	r := planAtNoon(t, v, c)
	require.Equal(t, []string{
		"resize p1: Retry", "resize p7: OutOfBounds",
		"skip p0: Deferred", "skip p2: NotRunning", "skip p3: Infeasible", "skip p4: ResizeFailed", "skip p5: WaitingForNode", "skip p6: WaitingForNode",
	}, formatPlan(r))
	require.Contains(t, r.State.Recommended.Refused, "uid-p3")

	require.Equal(t, []string{"skip p0: BelowMinReplicas"}, formatPlan(planAtNoon(t, deployment(InPlace, 1, small("p0")), defaults())))
	c.InPlaceMode = false
	require.Equal(t, []string{"skip p0: ModeNotEnabled"}, formatPlan(planAtNoon(t, deployment(InPlace, 1, small("p0")), c)))
}

func TestState_ResizeTimesEndWithResize(t *testing.T) {
	v := deployment(InPlaceOrRecreate, 3, pods(3, nil)...)
	v.Pods[0].Resize = ResizeDeferred
	memory := State{Recommended: PodStates{Resizing: map[string]time.Time{"uid-p0": noon.Add(-400 * time.Second), "uid-gone": noon}}}
	r := Plan(View{VPAs: []VPA{*v}}, memory, defaults(), noon)
	require.Contains(t, formatPlan(r), "evict p0: ResizeStuck")
	require.NotContains(t, r.State.Recommended.Resizing, "uid-gone")

	v.Pods[0].UID = "uid-new"
	r = Plan(View{VPAs: []VPA{*v}}, memory, defaults(), noon)
	require.Contains(t, formatPlan(r), "skip p0: Deferred", "a namesake of an earlier pod")
	require.Equal(t, noon, r.State.Recommended.Resizing["uid-new"])

	v.Pods[0].Resize = NotResizing
	require.Empty(t, Plan(View{VPAs: []VPA{*v}}, r.State, defaults(), noon).State.Recommended.Resizing)

	v.Pods[0].Resize, v.Pods[0].ResizeSince = ResizeDeferred, noon.Add(-301*time.Second)
	require.Contains(t, formatPlan(Plan(View{VPAs: []VPA{*v}}, State{}, defaults(), noon)), "evict p0: ResizeStuck",
		"the pod's own condition survives a restart of the updater")
}

func TestPlan_SkipsChangesWithoutEffect(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Pod)
		want   reason.Reason
	}{
		{
			name:   "pod has its target",
			change: func(p *Pod) { p.Containers[0].Actual.Requests = p.Containers[0].Target.Requests },
			want:   reason.Unchanged,
		},
		{
			name:   "spec requests the target",
			change: func(p *Pod) { p.Containers[0].Spec.Requests = p.Containers[0].Target.Requests },
			want:   reason.WaitingForNode,
		},
		{
			name:   "only an unobserved container would change",
			change: func(p *Pod) { p.Containers[0].Observed = false },
			want:   reason.Unchanged,
		},
		{
			name: "target outside the LimitRange",
			change: func(p *Pod) {
				p.Containers[0].Target.Notes = []policy.Note{{Kind: resources.CPU, Reason: policy.OutsideRange}}
			},
			want: reason.OutsideLimitRange,
		},
		{
			name:   "no recommendation",
			change: func(p *Pod) { p.Containers[0].Target = policy.ContainerTarget{Name: "app"} },
			want:   reason.NoRecommendation,
		},
		{
			name: "no start time",
			change: func(p *Pod) {
				p.Containers[0] = container(900, 900, 1000, 1000)
				p.Started = time.Time{}
			},
			want: reason.TooYoung,
		},
		{name: "small change", change: func(p *Pod) { p.Containers[0] = container(990, 1000, 1000, 1000) }, want: reason.SmallChange},
		{name: "unknown owner", change: func(p *Pod) { p.Group = 7 }, want: reason.NoOwner},
		{name: "no owner", change: func(p *Pod) { p.Group = -1 }, want: reason.NoOwner},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, mode := range []Mode{Recreate, InPlaceOrRecreate, InPlace} {
				v := deployment(mode, 3, pods(3, func(_ int, p *Pod) { tc.change(p) })...)
				r := planAtNoon(t, v, defaults())
				require.Empty(t, r.Actions)
				require.Equal(t, tc.want, r.Skipped[0].Reason)
			}
		})
	}
	for _, mode := range []Mode{Off, Initial} {
		require.Equal(t, reason.ModeOff, planAtNoon(t, deployment(mode, 3, pods(3, nil)...), defaults()).Skipped[0].Reason)
	}
}

func TestOOMKill_QuickOOMNeedsNoBudget(t *testing.T) {
	crashed := func(ran, ago time.Duration) Pod {
		p := small("p0")
		p.Ready, p.Started = false, noon.Add(-time.Hour)
		p.Containers[0] = container(1000, 900, 1000, 1000)
		p.Containers[0].OOM = OOM{Started: noon.Add(-ago - ran), Ended: noon.Add(-ago)}
		return p
	}
	v := deployment(InPlaceOrRecreate, 1, crashed(time.Minute, time.Minute))
	require.Equal(t, []string{"resize p0: OutOfMemory"}, formatPlan(planAtNoon(t, v, defaults())), "no budget is needed for a pod that does not work")

	v.Pods[0] = crashed(10*time.Minute, time.Minute)
	require.Equal(t, []string{"skip p0: TooYoung"}, formatPlan(planAtNoon(t, v, defaults())))
	v.Pods[0] = crashed(time.Minute, 10*time.Minute)
	require.Equal(t, []string{"skip p0: TooYoung"}, formatPlan(planAtNoon(t, v, defaults())), "out of memory long ago")
	v.Pods[0] = crashed(time.Minute, time.Minute)
	v.Pods[0].Containers[0].Off = true
	require.Equal(t, []string{"skip p0: TooYoung"}, formatPlan(planAtNoon(t, v, defaults())))
	v.Pods[0].Containers[0].Off = false
	v.QuickOOMTime = 30 * time.Second
	require.Equal(t, []string{"skip p0: TooYoung"}, formatPlan(planAtNoon(t, v, defaults())))
}

func TestResize_InfeasibleIsNotRetried(t *testing.T) {
	v := deployment(InPlace, 3, pods(3, nil)...)
	first := planAtNoon(t, v, defaults())
	memory := first.State
	put(&memory.Recommended.Refused, first.Actions[0].UID, requests(first.Actions[0].Containers))

	again := Plan(View{VPAs: []VPA{*v}}, memory, defaults(), noon)
	require.Contains(t, formatPlan(again), "skip p0: Infeasible")
	v.Mode = InPlaceOrRecreate
	require.Contains(t, formatPlan(Plan(View{VPAs: []VPA{*v}}, memory, defaults(), noon)), "evict p0: ResizeStuck", "the resize is not tried again")

	v.Mode = InPlace
	v.Pods[0].Containers[0].Target.Requests = resources.NewList(1001, 999<<20)
	require.Contains(t, formatPlan(Plan(View{VPAs: []VPA{*v}}, again.State, defaults(), noon)), "resize p0: OutOfBounds", "one target is lower")
	v.Pods[0].Containers[0].Actual.Requests = resources.NewList(1000, 1000<<20)
	require.Empty(t, Plan(View{VPAs: []VPA{*v}}, again.State, defaults(), noon).State.Recommended.Refused, "it was granted after all")
}

func TestResize_UnrequestedTargetIsNotRefused(t *testing.T) {
	v := deployment(InPlace, 2, pods(2, func(_ int, p *Pod) {
		p.Resize, p.Containers[0].Spec.Requests = ResizeInfeasible, resources.NewList(9000, 9<<30)
	})...)
	first := planAtNoon(t, v, defaults())
	require.Equal(t, []string{"resize p0: Retry", "skip p1: BudgetSpent"}, formatPlan(first))
	v.Pods[0] = pods(1, func(_ int, p *Pod) { p.Containers[0].Actual, p.Containers[0].Spec = granted(*p), granted(*p) })[0]
	require.Equal(t, []string{"resize p1: Retry", "skip p0: Unchanged"}, formatPlan(Plan(View{VPAs: []VPA{*v}}, first.State, defaults(), noon)))
}

func granted(p Pod) policy.Container {
	f := p.Containers[0].Target
	return policy.Container{Name: f.Name, Requests: f.Requests, Limits: f.Limits}
}

func TestEviction_RespectsRequirements(t *testing.T) {
	up := Requirement{Kinds: [resources.Kinds]bool{true, true}, Higher: true}
	down := Requirement{Kinds: [resources.Kinds]bool{resources.Memory: true}}
	v := deployment(Recreate, 3, pods(3, func(_ int, p *Pod) { p.Containers[0] = container(100, 3000, 1000, 1000) })...)
	for _, tc := range []struct {
		name         string
		requirements []Requirement
		evicts       bool
	}{
		{name: "no requirements", evicts: true},
		{name: "CPU or memory must increase", requirements: []Requirement{up}, evicts: true},
		{name: "all requirements are met", requirements: []Requirement{up, down}, evicts: true},
		{name: "requirement without resources", requirements: []Requirement{{Higher: true}}},
		{name: "memory must increase", requirements: []Requirement{{Kinds: down.Kinds, Higher: true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v.Requirements = tc.requirements
			require.Equal(t, tc.evicts, len(planAtNoon(t, v, defaults()).Actions) > 0)
		})
	}
	same := deployment(Recreate, 3, pods(3, func(_ int, p *Pod) { p.Containers[0] = container(100, 1000, 1000, 1000) })...)
	for _, higher := range []bool{false, true} {
		same.Requirements = []Requirement{{Kinds: down.Kinds, Higher: higher}}
		require.Empty(t, planAtNoon(t, same, defaults()).Actions, "what stays is neither higher nor lower")
	}
	v.Requirements = []Requirement{{Kinds: down.Kinds, Higher: true}}
	v.Pods[0].Containers[0].Actual.Requests = resources.List{}.With(resources.CPU, 5)
	require.Equal(t, []string{"evict p0: OutOfBounds"}, formatPlan(planAtNoon(t, v, defaults()))[:1], "without a request everything is met")
}

func TestReasons_AreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range reason.SkipReasons() {
		require.NotEmpty(t, r.String())
		require.False(t, seen[r.String()])
		seen[r.String()] = true
	}
	require.Len(t, seen, len(reason.SkipReasons()))
}

// All pods are at their targets, the common case.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d pods", n), func(b *testing.B) {
			var view View
			for i := range n / 5 {
				v := deployment(InPlaceOrRecreate, 5, pods(5, func(_ int, p *Pod) { p.Containers[0] = container(1000, 1000, 1000, 1000) })...)
				v.Name = fmt.Sprintf("web-%d", i)
				view.VPAs = append(view.VPAs, *v)
			}
			b.ReportAllocs()
			for b.Loop() {
				if r := Plan(view, State{}, defaults(), noon); len(r.Actions) > 0 || len(r.Skipped) != n {
					b.Fatal("unexpected plan")
				}
			}
		})
	}
}
