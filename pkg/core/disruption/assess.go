package disruption

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// Assessment says how urgent a change of one pod is, and whether it is worth
// one at all.
type Assessment struct {
	Distance
	QuickOOM bool          // a container ran out of memory soon after it started
	Reason   reason.Reason // why the pod is not worth a change; empty if it is
}

// Cause is why an assessed pod should be changed.
func (a Assessment) Cause() Cause {
	switch {
	case a.QuickOOM:
		return OutOfMemory
	case a.OutOfBounds:
		return OutOfBounds
	}
	return Changed
}

// moreUrgent orders assessments: pods that grow first, then the larger change.
func (a Assessment) moreUrgent(b Assessment) int {
	switch {
	case a.Grows && !b.Grows:
		return -1
	case b.Grows && !a.Grows:
		return 1
	}
	return cmp.Compare(b.Change, a.Change)
}

// Assess compares what a pod has with what it would get. Containers that the
// webhook did not see do not count.
func Assess(v *VPA, p *Pod, c Config, now time.Time) Assessment {
	a := Assessment{Distance: p.Distance()}
	a.QuickOOM = p.QuickOOM(cmp.Or(v.QuickOOM, c.QuickOOM), now)
	a.Reason = a.judge(p, c, now)
	if a.Reason == "" && (!v.Mode.Resizes() || p.WouldRestart() && (!p.IsOOMResize() || !p.killedLately(now))) {
		a.Reason = v.protection(p, !v.Mode.Resizes())
	}
	return a
}

func (a Assessment) judge(p *Pod, c Config, now time.Time) reason.Reason {
	switch {
	case p.Boosted && !p.CPURefused():
		return reason.Boosted
	case p.Boosted && !p.WantsOOMResize(): // it would be boosted anew, and again not give it back
		return reason.StaticCPU
	case !slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Recommended() }):
		return reason.NoRecommendation
	case p.PodLevel:
		return reason.PodLevelResources
	case !p.Changed():
		return reason.Unchanged
	case p.ViolatesLimitRange():
		return reason.OutsideLimitRange
	}
	if !a.OutOfBounds && !a.QuickOOM {
		if p.Started.IsZero() || now.Before(p.Started.Add(c.Lifetime)) {
			return reason.TooYoung
		}
		if a.Change < c.Threshold {
			return reason.SmallChange
		}
	}
	if a.QuickOOM && a.Change == 0 {
		return reason.SmallChange
	}
	return ""
}

// ViolatesLimitRange reports whether a LimitRange would refuse the pod.
func (p *Pod) ViolatesLimitRange() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return slices.ContainsFunc(c.Target.Notes, policy.Note.Refused) })
}

// Admits reports whether one container of the pod meets all requirements.
func (v *VPA) Admits(p *Pod) bool {
	return len(v.Requirements) == 0 || slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Recommended() && !slices.ContainsFunc(v.Requirements, func(r Requirement) bool { return !c.meets(r) })
	})
}

// meets reports whether the container would change as r demands. A missing request counts as 0, and
// kinds that r does not name do not matter.
func (c *Container) meets(r Requirement) bool {
	met := false
	for k := range resources.Kind(resources.Kinds) {
		request := c.Actual.Requests.Value(k)
		target, ok := c.Target.Bounds.Target.Get(k)
		met = met || ok && r.Kinds[k] && (r.Higher && target > request || !r.Higher && target < request)
	}
	return met
}

// Distance is how far a pod is from what it would get.
type Distance struct {
	OutOfBounds bool    // a request is missing or outside the recommended bounds
	Grows       bool    // a request is missing or below its target
	Change      float64 // relative change of the pod's sums, added up over the kinds
}

// Distance follows from the amounts. Containers that the webhook did not see do not
// count. The sums run over whole pods, so opposite changes of two containers cancel
// out, as in the reference VPA. Where a memory limit does not follow the request, one that is
// too far from what it should be is out of bounds, too, and the larger of both changes counts.
func (p *Pod) Distance() Distance {
	var a Distance
	var sized [resources.Kinds]bool
	var requests, targets [resources.Kinds]resources.Amount
	var limits, wanted resources.Amount
	for i := range p.Containers {
		c := &p.Containers[i]
		if !c.Observed || !c.Recommended() {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			target, ok := c.Target.Bounds.Target.Get(k)
			if !ok {
				continue
			}
			request, has := c.Actual.Requests.Get(k)
			sized[k] = true
			requests[k], targets[k] = requests[k].Add(request), targets[k].Add(target)
			a.Grows = a.Grows || !has || target > request
			a.OutOfBounds = a.OutOfBounds || !has || outside(c.Target.Bounds, k, request)
		}
		if span := c.Target.MemoryLimit; span != (policy.LimitSpan{}) {
			has, gets := c.Actual.Limits.Value(resources.Memory), c.Target.Limits.Value(resources.Memory)
			limits, wanted = limits.Add(has), wanted.Add(gets)
			a.Grows = a.Grows || gets > has
			a.OutOfBounds = a.OutOfBounds || has < span.Least || has > span.Most
		}
	}
	for k, counts := range sized {
		if !counts {
			continue
		}
		change := Relative(resources.Kind(k), requests[k], targets[k])
		if k == int(resources.Memory) && wanted > 0 {
			change = max(change, Relative(resources.Memory, limits, wanted))
		}
		a.Change += change
	}
	return a
}

func outside(b resources.Bounds, k resources.Kind, request resources.Amount) bool {
	lower, hasLower := b.Lower.Get(k)
	upper, hasUpper := b.Upper.Get(k)
	return hasLower && request < lower || hasUpper && request > upper
}

// Relative is the change from a to b in relation to a. Both are taken in
// thousandths of their unit, and a is at least one of them, as in the reference
// VPA: a pod without requests changes hugely.
func Relative(k resources.Kind, a, b resources.Amount) float64 {
	if k == resources.Memory {
		a, _ = a.Proportion(1000, 1)
		b, _ = b.Proportion(1000, 1)
	}
	a = max(a, 1)
	return float64(max(a-b, b-a)) / float64(a)
}
