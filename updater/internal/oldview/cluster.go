package oldview

import (
	"context"
	"slices"
	"time"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/sizing"
)

// Cluster reports what holds for all policies in mode On.
type Cluster struct {
	Policies *sizing.Policies
	Nodes    func() bool // whether nodes can be seen
	Growth   *Growth
}

func (c *Cluster) standings(ctx context.Context, now time.Time) (s Standings, seldom bool) {
	asked := slices.ContainsFunc(c.Policies.Now().Objects(), func(p *loadlinev1alpha1.SizingPolicy) bool {
		return c.Policies.Now().Set().Policy(p.Name).Sharing.Mode == fleet.SharingOn
	})
	if !asked || !c.Nodes() {
		return s, false
	}
	c.Growth.Look(ctx, now)
	s = Standings{Usual: Acts, BesideNodeAutoscaler: Acts}
	switch {
	case !c.Growth.Known(): // it may be in a moment, so nobody leaves for that
		s.Usual, seldom = Waits, true
	case c.Growth.Seen():
		s.Usual, seldom = Ends, true
	}
	return s, seldom
}
