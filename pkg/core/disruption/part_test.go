package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func capToRoom() Config {
	c := defaults()
	c.CapToRoom, c.FreeResizes = true, true
	return c
}

func TestPartialResize_FitsRoom(t *testing.T) {
	half := Quota{Requests: resources.NewList(450, 900<<20)} // of 900m and 900Mi more
	for _, tc := range []struct {
		name string
		room *Capacity
		want resources.List
	}{
		{name: "room for the full change", room: twoNodes(4, 0), want: resources.NewList(1000, 1000<<20)},
		{name: "quota leaves half of the change", room: twoNodes(4, 0, half), want: resources.NewList(550, 1000<<20)},
		{
			name: "node leaves a third of the change",
			room: NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Free: resources.NewList(300, 4<<30)}}, nil),
			want: resources.NewList(399, 1000<<20),
		},
		{
			name: "node smaller than the target",
			room: NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Allocatable: resources.NewList(500, 4<<30)}}, nil),
			want: resources.NewList(499, 1000<<20),
		},
		{
			name: "no CPU left on the node",
			room: NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Free: resources.NewList(0, 4<<30)}}, nil),
			want: resources.NewList(100, 1000<<20),
		},
		{
			name: "overcommitted node",
			room: NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Free: resources.NewList(-50, 4<<30)}}, nil),
			want: resources.NewList(100, 1000<<20),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, mode := range []Mode{InPlace, InPlaceOrRecreate} {
				v := deploymentOnNode(mode, 2)
				v.Pods = v.Pods[:1]
				r := Plan(View{VPAs: []VPA{*v}, Room: tc.room}, State{}, capToRoom(), noon)
				require.Len(t, r.Actions, 1, "%v", formatPlan(r))
				require.Equal(t, tc.want, r.Actions[0].Containers[0].Requests)
				if tc.want != resources.NewList(1000, 1000<<20) {
					require.False(t, r.Actions[0].MayEvict, "an eviction would not be cut")
				}
			}
		})
	}
}

func TestPartialResize_KeepsLimitProportion(t *testing.T) {
	v := deploymentOnNode(InPlace, 2)
	v.Pods = v.Pods[:1]
	c := &v.Pods[0].Containers[0]
	c.Spec.Limits, c.Actual.Limits, c.Target.Limits = resources.NewList(200, 100<<20), resources.NewList(200, 100<<20), resources.NewList(2000, 1000<<20)
	for _, tc := range []struct {
		name  string
		quota Quota
	}{
		{name: "quota of requests", quota: Quota{Requests: resources.NewList(450, 450<<20)}},
		{name: "quota of limits", quota: Quota{Limits: resources.NewList(900, 450<<20)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Plan(View{VPAs: []VPA{*v}, Room: twoNodes(4, 0, tc.quota)}, State{}, capToRoom(), noon)
			require.Equal(t, []string{"resize p0: OutOfBounds"}, formatPlan(r))
			require.Equal(t, resources.NewList(550, 550<<20), r.Actions[0].Containers[0].Requests)
			require.Equal(t, resources.NewList(1100, 550<<20), r.Actions[0].Containers[0].Limits)
		})
	}
}

func TestPartialResize_IsOptIn(t *testing.T) {
	v := deploymentOnNode(InPlace, 2)
	require.Equal(t, []string{"skip p0: NodeFull", "skip p1: NodeFull"}, formatPlan(Plan(View{VPAs: []VPA{*v}, Room: twoNodes(0, 16)}, allRequested(v), defaults(), noon)))
	v = deploymentOnNode(Recreate, 2)
	require.Equal(t, []string{"skip p0: NodeFull", "skip p1: NodeFull"}, formatPlan(Plan(View{VPAs: []VPA{*v}, Room: twoNodes(0, 0)}, State{}, capToRoom(), noon)), "evictions never are")
}
