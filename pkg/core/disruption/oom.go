package disruption

import (
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// QuickOOM reports whether a container ran out of memory less than the threshold
// after its start, and less than the threshold ago.
func (p *Pod) QuickOOM(threshold time.Duration, now time.Time) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Observed && !c.Off && !c.OOM.Ended.IsZero() &&
			c.OOM.Ended.Sub(c.OOM.Started) < threshold && now.Sub(c.OOM.Ended) < threshold
	})
}

// IsOOMResize reports whether a resize gives memory after an out-of-memory kill and disrupts nothing
// that works: the last termination of a container that grows was an out-of-memory kill, and the pod
// is not ready or no container restarts for it. Such a resize
//
//   - needs no budget (Situation.needsNoBudget), and no PodDisruptionBudget is asked (package actuate),
//   - waits neither for the back-off of its workload, nor for the stabilization window or
//     other restarts, and is not put off (plan.mustWait, plan.resize),
//   - asks for memory alone where the node gives no other CPU (Situation.nodeRefuses, grantable),
//   - is counted by no rate limit of disruptions; if it comes to an eviction of a pod that is not
//     ready, that takes only what grows from a quota (Need.Yields).
//
// It must be worth it (Assess: out of bounds, or killed soon after its start), have an owner, not be pending, have
// no other resize under way that the mode waits for, must not have
// been tried in vain, and must find room; a full node is asked once all the same (fitting). The rollout of a policy must leave
// it at least its memory.
// Plan marks its action with OOMResize.
func (p *Pod) IsOOMResize() bool { return p.WantsOOMResize() && (!p.Ready || !p.WouldRestart()) }

// lately is for how long an out-of-memory kill lifts the protections of a pod that is not ready. A pod may
// be unready for another cause, long after a kill.
const lately = 10 * time.Minute

func (p *Pod) killedLately(now time.Time) bool {
	return p.Any(func(c *Container, k resources.Kind) bool {
		return k == resources.Memory && now.Sub(c.OOM.Ended) < lately && c.moreMemory()
	})
}

// starved reports whether a pod is not ready and the last termination of a container that would grow was an
// out-of-memory kill.
func (p *Pod) starved() bool { return !p.Ready && p.WantsOOMResize() }

// WantsOOMResize reports whether a container that would get more memory was out of it last.
func (p *Pod) WantsOOMResize() bool {
	return p.Any(func(c *Container, k resources.Kind) bool {
		return k == resources.Memory && !c.OOM.Ended.IsZero() && c.moreMemory()
	})
}

// moreMemory reports whether the change raises the memory of a container above both its current and its
// requested sizes: the request or, where the limit does not follow the request, the limit. A resize in
// progress, such as a revert, may request more than the recommendation.
func (c *Container) moreMemory() bool {
	const k = resources.Memory
	return c.Target.Requests.Value(k) > max(c.Actual.Requests.Value(k), c.Spec.Requests.Value(k)) ||
		c.Target.MemoryLimit != (policy.LimitSpan{}) && c.Target.Limits.Value(k) > max(c.Actual.Limits.Value(k), c.Spec.Limits.Value(k))
}

// withMemory returns a held pod that gets nothing but memory, for those of its containers that
// were out of it last; nil: none was, or the rollout does not allow that either.
func (p *Pod) withMemory() *Pod {
	if !p.MemoryOnly || !p.WantsOOMResize() {
		return nil
	}
	only := *p
	only.Containers = slices.Clone(p.Containers)
	for i := range only.Containers {
		c := &only.Containers[i]
		grows := c.Observed && !c.OOM.Ended.IsZero() && c.moreMemory()
		for k := range resources.Kind(resources.Kinds) {
			if k != resources.Memory || !grows {
				c.Target.Requests, c.Target.Limits = c.Target.Requests.Without(k), c.Target.Limits.Without(k)
			}
		}
	}
	return &only
}

// starves reports whether a pod that ran out of memory that it shares is to be evicted because it does not
// get more in place. A kubelet that was asked has a while to find room.
func (p *plan) starves(pod *Pod) bool {
	switch p.refused[pod.UID] {
	case reason.NodeFull, reason.TooLargeForNode, reason.Infeasible, reason.ClassWouldChange, reason.BackingOff:
		return true
	case reason.Deferred, reason.ResizeFailed:
		return p.now.Sub(p.before.Since(pod, p.now)) > DeferredTimeout
	}
	return false
}

// OnlyOOM returns the plan with nothing but what gives memory after out-of-memory kills, and without evictions.
func (r Result) OnlyOOM() Result {
	var kept []Action
	for _, a := range r.Actions {
		a.MayEvict = false
		if a.Share != nil && !a.Share.OOMResize {
			a.Share, a.Stage = nil, StageRecommendation
		}
		switch {
		case a.OOMResize:
			kept = append(kept, a)
		case a.Share != nil:
			kept = append(kept, *a.Share)
		}
	}
	r.Actions = inStages(kept)
	return r
}
