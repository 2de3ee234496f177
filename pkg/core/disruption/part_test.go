package disruption

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func capping() Config {
	c := defaults()
	c.CapToRoom, c.FreeResizes = true, true
	return c
}

func TestAResizeIsCutToTheRoom(t *testing.T) {
	half := Quota{Requests: resources.Of(450, 900<<20)} // of 900m and 900Mi more
	for name, test := range map[string]struct {
		room *Capacity
		want resources.List
	}{
		"all of it fits":              {rooms(4, 0), resources.Of(1000, 1000<<20)},
		"the quota leaves half":       {rooms(4, 0, half), resources.Of(550, 1000<<20)},
		"the node leaves a third":     {NewCapacity([]Node{{Name: "n1", Open: true, Free: resources.Of(300, 4<<30)}}, nil), resources.Of(399, 1000<<20)},
		"the node is that small":      {NewCapacity([]Node{{Name: "n1", Open: true, Size: resources.Of(500, 4<<30)}}, nil), resources.Of(499, 1000<<20)},
		"CPU has no room at all":      {NewCapacity([]Node{{Name: "n1", Open: true, Free: resources.Of(0, 4<<30)}}, nil), resources.Of(100, 1000<<20)},
		"the node has given too much": {NewCapacity([]Node{{Name: "n1", Open: true, Free: resources.Of(-50, 4<<30)}}, nil), resources.Of(100, 1000<<20)},
	} {
		for _, mode := range []Mode{InPlace, InPlaceOrRecreate} {
			v := housed(mode, 2)
			v.Pods = v.Pods[:1]
			r := Plan(View{VPAs: []VPA{*v}, Room: test.room}, State{}, capping(), noon)
			require.Len(t, r.Actions, 1, "%s: %v", name, told(r))
			require.Equal(t, test.want, r.Actions[0].Containers[0].Requests, name)
			if test.want != resources.Of(1000, 1000<<20) {
				require.False(t, r.Actions[0].MayEvict, "%s: an eviction would not be cut", name)
			}
		}
	}
}

func TestAPodThatGotAPartWaitsForMoreRoom(t *testing.T) {
	v := housed(InPlaceOrRecreate, 2)
	v.Pods = v.Pods[:1]
	tight := func(left resources.Amount) *Capacity {
		return NewCapacity([]Node{{Name: "n1", Open: true, Free: resources.Of(left, 4<<30)}}, nil)
	}
	first := Plan(View{VPAs: []VPA{*v}, Room: tight(450)}, State{}, capping(), noon)
	require.Equal(t, []string{"resize p0: OutOfBounds"}, told(first))
	did(&first.State, first.Actions[0], noon)
	pod := &v.Pods[0]
	pod.Containers[0].Spec.Requests = first.Actions[0].Containers[0].Requests
	pod.Containers[0].Actual = pod.Containers[0].Spec
	pod.Footprint = pod.Containers[0].Actual.Requests

	r := Plan(View{VPAs: []VPA{*v}, Room: tight(40)}, first.State, capping(), noon.Add(time.Minute))
	require.Equal(t, []string{"skip p0: NodeFull"}, told(r), "40m more are not worth a resize")
	r = Plan(View{VPAs: []VPA{*v}, Room: tight(300)}, r.State, capping(), noon.Add(2*time.Minute))
	require.Equal(t, []string{"resize p0: Changed"}, told(r))
}

func TestLimitsKeepTheirProportionInAPart(t *testing.T) {
	v := housed(InPlace, 2)
	v.Pods = v.Pods[:1]
	c := &v.Pods[0].Containers[0]
	c.Spec.Limits, c.Actual.Limits, c.Target.Limits = resources.Of(200, 100<<20), resources.Of(200, 100<<20), resources.Of(2000, 1000<<20)
	for name, quota := range map[string]Quota{"of requests": {Requests: resources.Of(450, 450<<20)}, "of limits": {Limits: resources.Of(900, 450<<20)}} {
		r := Plan(View{VPAs: []VPA{*v}, Room: rooms(4, 0, quota)}, State{}, capping(), noon)
		require.Equal(t, []string{"resize p0: OutOfBounds"}, told(r), name)
		require.Equal(t, resources.Of(550, 550<<20), r.Actions[0].Containers[0].Requests, name)
		require.Equal(t, resources.Of(1100, 550<<20), r.Actions[0].Containers[0].Limits, name)
	}
}

func TestNothingIsCutUnlessAsked(t *testing.T) {
	v := housed(InPlace, 2)
	require.Equal(t, []string{"skip p0: NodeFull", "skip p1: NodeFull"}, told(Plan(View{VPAs: []VPA{*v}, Room: rooms(0, 16)}, askedFor(v), defaults(), noon)))
	v = housed(Recreate, 2)
	require.Equal(t, []string{"skip p0: NodeFull", "skip p1: NodeFull"}, told(Plan(View{VPAs: []VPA{*v}, Room: rooms(0, 0)}, State{}, capping(), noon)), "evictions never are")
}
