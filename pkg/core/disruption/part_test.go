package disruption

import (
	"testing"
	"time"

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
	for name, test := range map[string]struct {
		room *Capacity
		want resources.List
	}{
		"all of it fits":              {twoNodes(4, 0), resources.NewList(1000, 1000<<20)},
		"the quota leaves half":       {twoNodes(4, 0, half), resources.NewList(550, 1000<<20)},
		"the node leaves a third":     {NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Free: resources.NewList(300, 4<<30)}}, nil), resources.NewList(399, 1000<<20)},
		"the node is that small":      {NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Allocatable: resources.NewList(500, 4<<30)}}, nil), resources.NewList(499, 1000<<20)},
		"CPU has no room at all":      {NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Free: resources.NewList(0, 4<<30)}}, nil), resources.NewList(100, 1000<<20)},
		"the node has given too much": {NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Free: resources.NewList(-50, 4<<30)}}, nil), resources.NewList(100, 1000<<20)},
	} {
		for _, mode := range []Mode{InPlace, InPlaceOrRecreate} {
			v := deploymentOnNode(mode, 2)
			v.Pods = v.Pods[:1]
			r := Plan(View{VPAs: []VPA{*v}, Room: test.room}, State{}, capToRoom(), noon)
			require.Len(t, r.Actions, 1, "%s: %v", name, formatPlan(r))
			require.Equal(t, test.want, r.Actions[0].Containers[0].Requests, name)
			if test.want != resources.NewList(1000, 1000<<20) {
				require.False(t, r.Actions[0].MayEvict, "%s: an eviction would not be cut", name)
			}
		}
	}
}

func TestPartialResize_WaitsForMoreRoom(t *testing.T) {
	v := deploymentOnNode(InPlaceOrRecreate, 2)
	v.Pods = v.Pods[:1]
	tight := func(left resources.Amount) *Capacity {
		return NewCapacity([]Node{{Name: "n1", AcceptsPods: true, Free: resources.NewList(left, 4<<30)}}, nil)
	}
	first := Plan(View{VPAs: []VPA{*v}, Room: tight(450)}, State{}, capToRoom(), noon)
	require.Equal(t, []string{"resize p0: OutOfBounds"}, formatPlan(first))
	recordDone(&first.State, first.Actions[0], noon)
	pod := &v.Pods[0]
	pod.Containers[0].Spec.Requests = first.Actions[0].Containers[0].Requests
	pod.Containers[0].Actual = pod.Containers[0].Spec
	pod.Footprint = pod.Containers[0].Actual.Requests

	r := Plan(View{VPAs: []VPA{*v}, Room: tight(40)}, first.State, capToRoom(), noon.Add(time.Minute))
	require.Equal(t, []string{"skip p0: NodeFull"}, formatPlan(r), "40m more are not worth a resize")
	r = Plan(View{VPAs: []VPA{*v}, Room: tight(300)}, r.State, capToRoom(), noon.Add(2*time.Minute))
	require.Equal(t, []string{"resize p0: Changed"}, formatPlan(r))
}

func TestPartialResize_KeepsLimitProportion(t *testing.T) {
	v := deploymentOnNode(InPlace, 2)
	v.Pods = v.Pods[:1]
	c := &v.Pods[0].Containers[0]
	c.Spec.Limits, c.Actual.Limits, c.Target.Limits = resources.NewList(200, 100<<20), resources.NewList(200, 100<<20), resources.NewList(2000, 1000<<20)
	for name, quota := range map[string]Quota{"of requests": {Requests: resources.NewList(450, 450<<20)}, "of limits": {Limits: resources.NewList(900, 450<<20)}} {
		r := Plan(View{VPAs: []VPA{*v}, Room: twoNodes(4, 0, quota)}, State{}, capToRoom(), noon)
		require.Equal(t, []string{"resize p0: OutOfBounds"}, formatPlan(r), name)
		require.Equal(t, resources.NewList(550, 550<<20), r.Actions[0].Containers[0].Requests, name)
		require.Equal(t, resources.NewList(1100, 550<<20), r.Actions[0].Containers[0].Limits, name)
	}
}

func TestPartialResize_IsOptIn(t *testing.T) {
	v := deploymentOnNode(InPlace, 2)
	require.Equal(t, []string{"skip p0: NodeFull", "skip p1: NodeFull"}, formatPlan(Plan(View{VPAs: []VPA{*v}, Room: twoNodes(0, 16)}, allRequested(v), defaults(), noon)))
	v = deploymentOnNode(Recreate, 2)
	require.Equal(t, []string{"skip p0: NodeFull", "skip p1: NodeFull"}, formatPlan(Plan(View{VPAs: []VPA{*v}, Room: twoNodes(0, 0)}, State{}, capToRoom(), noon)), "evictions never are")
}
