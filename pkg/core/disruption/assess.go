package disruption

import (
	"cmp"
	"slices"
	"time"
)

// Assessment says how urgent a change of one pod is, and whether it is worth
// one at all.
type Assessment struct {
	Distance
	QuickOOM bool   // a container ran out of memory soon after it started
	Reason   Reason // why the pod is not worth a change; empty if it is
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
	if a.Reason == "" && !v.Admits(p) {
		a.Reason = RequirementsNotMet
	}
	return a
}

func (a Assessment) judge(p *Pod, c Config, now time.Time) Reason {
	switch {
	case p.Boosted && !p.Pinned():
		return Boosted
	case p.Boosted && !p.WantsOOMResize(): // it would be boosted anew, and again not give it back
		return StaticCPU
	case !slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Recommended() }):
		return NoRecommendation
	case p.Whole:
		return PodLevelResources
	case !p.Changed():
		return Unchanged
	case p.Refused():
		return OutsideLimitRange
	}
	if !a.OutOfBounds && !a.QuickOOM {
		if p.Started.IsZero() || now.Before(p.Started.Add(c.Lifetime)) {
			return TooYoung
		}
		if a.Change < c.Threshold {
			return SmallChange
		}
	}
	if a.QuickOOM && a.Change == 0 {
		return SmallChange
	}
	return ""
}
