package disruption

import (
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Refused tells whether a LimitRange would refuse the pod.
func (p *Pod) Refused() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return slices.ContainsFunc(c.Fitted.Notes, policy.Note.Refused) })
}

// QuickOOM tells whether a container ran out of memory less than the threshold
// after its start, and less than the threshold ago.
func (p *Pod) QuickOOM(threshold time.Duration, now time.Time) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Observed && !c.Off && !c.OOM.Ended.IsZero() &&
			c.OOM.Ended.Sub(c.OOM.Started) < threshold && now.Sub(c.OOM.Ended) < threshold
	})
}

// Admits tells whether one container of the pod meets all requirements.
func (v *VPA) Admits(p *Pod) bool {
	return len(v.Requirements) == 0 || slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Recommended() && !slices.ContainsFunc(v.Requirements, func(r Requirement) bool { return !c.meets(r) })
	})
}

// meets tells whether the container would change as r demands. One that lacks a
// request meets everything.
func (c *Container) meets(r Requirement) bool {
	met := false
	for k := range resources.Kind(resources.Kinds) {
		request, has := c.Current.Requests.Get(k)
		if !has {
			return true
		}
		target, ok := c.Fitted.Bounds.Target.Get(k)
		met = met || ok && r.Kinds[k] && (r.Higher && target > request || !r.Higher && target < request)
	}
	return met
}
