package disruption

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestPlan_ResizesProtectedPodsWithoutEviction(t *testing.T) {
	lower := []Requirement{{Kinds: [resources.Kinds]bool{true, true}}}
	restarts := func(p *Pod) { p.Containers[0].Restarts[resources.CPU] = true }
	killed := func(p *Pod) {
		p.Ready, p.Containers[0].OOM = false, OOM{Started: noon.Add(-time.Hour), Ended: noon}
	}
	infeasible := func(p *Pod) {
		p.Resize, p.ResizeSince = ResizeInfeasible, noon.Add(-time.Hour)
		p.Containers[0].Spec.Requests = p.Containers[0].Target.Requests
	}
	deferred := func(p *Pod) { infeasible(p); p.Resize = ResizeDeferred }
	unanswered := func(p *Pod) { p.Containers[0].Spec.Requests = p.Containers[0].Target.Requests }
	guaranteed := func(p *Pod) { p.Containers[0].Target.Limits = p.Containers[0].Target.Requests }
	for _, tc := range []struct {
		name         string
		protected    reason.Reason
		requirements []Requirement
		mode         Mode
		pod          func(*Pod)
		want         string
	}{
		{name: "resize", protected: reason.CountsAsFailure, mode: InPlaceOrRecreate, want: "resize p0: OutOfBounds"},
		{name: "resize against requirements", requirements: lower, mode: InPlaceOrRecreate, want: "resize p0: OutOfBounds"},
		{name: "mode InPlace", requirements: lower, mode: InPlace, want: "resize p0: OutOfBounds"},
		{name: "eviction", protected: reason.ProtectedFromEviction, mode: Recreate, want: "skip p0: ProtectedFromEviction"},
		{name: "eviction against requirements", requirements: lower, mode: Recreate, want: "skip p0: RequirementsNotMet"},
		{name: "restart", protected: reason.CountsAsFailure, mode: InPlaceOrRecreate, pod: restarts, want: "skip p0: CountsAsFailure"},
		{name: "restart in mode InPlace", protected: reason.ProtectedFromEviction, mode: InPlace, pod: restarts, want: "skip p0: ProtectedFromEviction"},
		{name: "restart against requirements", requirements: lower, mode: InPlaceOrRecreate, pod: restarts, want: "skip p0: RequirementsNotMet"},
		{name: "restart keeps the revision", protected: reason.OlderRevision, mode: InPlaceOrRecreate, pod: restarts, want: "resize p0: OutOfBounds"},
		{name: "restart after a kill", protected: reason.CountsAsFailure, mode: InPlaceOrRecreate, pod: func(p *Pod) { restarts(p); killed(p) },
			want: "resize p0: OutOfBounds"},
		{name: "restart long after a kill", protected: reason.CountsAsFailure, mode: InPlaceOrRecreate, pod: func(p *Pod) {
			restarts(p)
			killed(p)
			p.Containers[0].OOM.Ended = p.Containers[0].OOM.Ended.Add(-time.Hour)
		}, want: "skip p0: CountsAsFailure"},
		{name: "infeasible", protected: reason.OlderRevision, mode: InPlaceOrRecreate, pod: infeasible, want: "skip p0: OlderRevision"},
		{name: "infeasible in mode Recreate", protected: reason.OlderRevision, mode: Recreate, pod: infeasible, want: "skip p0: OlderRevision"},
		{name: "deferred for long", protected: reason.OlderRevision, mode: InPlaceOrRecreate, pod: deferred, want: "skip p0: Deferred"},
		{name: "unanswered", protected: reason.OlderRevision, mode: InPlaceOrRecreate, pod: unanswered, want: "skip p0: WaitingForNode"},
		{name: "other class", protected: reason.CountsAsFailure, mode: InPlaceOrRecreate, pod: guaranteed, want: "skip p0: CountsAsFailure"},
		{name: "node to leave", protected: reason.CountsAsFailure, mode: InPlaceOrRecreate, pod: func(p *Pod) { p.Share = &Share{Leaves: true} },
			want: "skip p0: CountsAsFailure"},
		{name: "memory refused", protected: reason.CountsAsFailure, mode: InPlaceOrRecreate, pod: func(p *Pod) {
			p.Share = &Share{MayEvict: true, Cause: ShareReverted, Target: []policy.ContainerTarget{p.Containers[0].Target}, Skip: reason.NodeFull}
		},
			want: "skip p0: CountsAsFailure"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := deployment(tc.mode, 3, pods(3, func(_ int, p *Pod) {
				p.Protected = tc.protected
				if tc.pod != nil {
					tc.pod(p)
				}
			})...)
			v.Requirements = tc.requirements
			c := defaults()
			c.FreeResizes, c.InPlaceMode = true, tc.mode == InPlace
			r := Plan(View{VPAs: []VPA{*v}, Room: NewCapacity(nil, nil)}, State{}, c, noon)
			require.Equal(t, tc.want, formatPlan(r)[0])
			later := planAt(v, r.State, c, noon.Add(48*time.Hour))
			for _, a := range later.Actions {
				require.False(t, a.Evict || a.MayEvict, "no eviction after two days either")
			}
		})
	}
}

func TestVPA_AdmitsByNamedResourcesOnly(t *testing.T) {
	cpu, memory, both := [resources.Kinds]bool{true, false}, [resources.Kinds]bool{false, true}, [resources.Kinds]bool{true, true}
	none := resources.List{}
	for _, tc := range []struct {
		name      string
		has, gets resources.List
		require   []Requirement
		want      bool
	}{
		{name: "memory grows, no CPU request", has: none.With(resources.Memory, 100), gets: resources.NewList(50, 200), require: []Requirement{{Kinds: memory}}},
		{name: "memory shrinks, no CPU request", has: none.With(resources.Memory, 200), gets: resources.NewList(50, 100),
			require: []Requirement{{Kinds: memory}}, want: true},
		{name: "CPU shrinks, no memory request", has: none.With(resources.CPU, 100), gets: resources.NewList(50, 100),
			require: []Requirement{{Kinds: cpu, Higher: true}}},
		{name: "no request where more is demanded", has: none, gets: resources.NewList(50, 100),
			require: []Requirement{{Kinds: both, Higher: true}}, want: true},
		{name: "no request where less is demanded", has: none, gets: resources.NewList(50, 100), require: []Requirement{{Kinds: both}}},
		{name: "no target of the named kind", has: resources.NewList(50, 100), gets: none.With(resources.Memory, 300),
			require: []Requirement{{Kinds: cpu, Higher: true}}},
		{name: "each of two", has: none.With(resources.Memory, 100), gets: resources.NewList(50, 200),
			require: []Requirement{{Kinds: cpu, Higher: true}, {Kinds: memory, Higher: true}}, want: true},
		{name: "one of two", has: none.With(resources.Memory, 100), gets: resources.NewList(50, 200),
			require: []Requirement{{Kinds: cpu, Higher: true}, {Kinds: memory}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Container{Observed: true, Actual: policy.Container{Requests: tc.has}, Target: policy.ContainerTarget{Bounds: resources.Bounds{Target: tc.gets}}}
			v := VPA{Requirements: tc.require}
			require.Equal(t, tc.want, v.Admits(&Pod{Containers: []Container{c}}))
		})
	}
}
