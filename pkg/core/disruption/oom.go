package disruption

import (
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// recentOOM is how long an out-of-memory kill overrides the protection of a pod that is not ready.
// Long after a kill the pod may be unready for another reason.
const recentOOM = 10 * time.Minute

// QuickOOM reports whether a container ran out of memory less than threshold after its start and
// less than threshold ago.
func (p *Pod) QuickOOM(threshold time.Duration, now time.Time) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Observed && !c.Off && !c.OOM.Ended.IsZero() &&
			c.OOM.Ended.Sub(c.OOM.Started) < threshold && now.Sub(c.OOM.Ended) < threshold
	})
}

// IsOOMResize reports whether a resize adds memory after an out-of-memory kill and disrupts no
// working pod. The last termination of a growing container was an out-of-memory kill, and either
// the pod is not ready or the resize restarts nothing. Such a resize
//
//   - needs neither budget (DecisionInput.needsNoBudget) nor PodDisruptionBudget (package actuate),
//   - ignores the protection of the pod from restarts for recentOOM after the kill (Assess),
//   - waits neither for the backoff of its workload, nor the stabilization window or other restarts,
//     and is not postponed (plan.resizeBlocker, plan.resize),
//   - requests only memory if the node does not change CPU (DecisionInput.nodeRefuses, grantablePart),
//   - is planned, as memory alone, for a pod that a rollout holds (plan.planVPA, Pod.onlyOOMMemory),
//   - is exempt from the rate limits of disruptions (package actuate). If a pod that is not ready is
//     evicted instead, only its growth counts against quotas (Need.Starved).
//
// All other conditions still apply. The change must be needed (Assess): out of bounds, killed soon
// after the start, or large enough for a pod older than Config.Lifetime. The pod must have an owner
// and not be pending. No other resize that the mode waits for may be in progress, and no backoff
// after failed requests. The resize must fit, but a full node is tried once (fitting). The rollout
// of a policy must allow at least memory. Plan marks the action with OOMResize.
func (p *Pod) IsOOMResize() bool { return p.WantsOOMResize() && (!p.Ready || !p.WouldRestart()) }

func (p *Pod) recentlyOOMKilled(now time.Time) bool {
	return p.AnyObserved(func(c *Container, k resources.Kind) bool {
		return k == resources.Memory && now.Sub(c.OOM.Ended) < recentOOM && c.growsMemory()
	})
}

func (p *Pod) starved() bool { return !p.Ready && p.WantsOOMResize() }

// WantsOOMResize reports whether a container with growing memory last terminated out of memory.
func (p *Pod) WantsOOMResize() bool {
	return p.AnyObserved(func(c *Container, k resources.Kind) bool {
		return k == resources.Memory && !c.OOM.Ended.IsZero() && c.growsMemory()
	})
}

// growsMemory reports whether the change raises the memory request, or an independent memory limit,
// above both the actual value and the spec. A resize in progress, such as a revert, may request
// more than the recommendation.
func (c *Container) growsMemory() bool {
	const k = resources.Memory
	return c.Target.Requests.Value(k) > max(c.Actual.Requests.Value(k), c.Spec.Requests.Value(k)) ||
		c.Target.MemoryLimit != (policy.LimitSpan{}) && c.Target.Limits.Value(k) > max(c.Actual.Limits.Value(k), c.Spec.Limits.Value(k))
}

// onlyOOMMemory returns a copy of a held pod that only changes memory, of containers that grow after
// an out-of-memory kill. It is nil if there are none, or the rollout forbids that as well.
func (p *Pod) onlyOOMMemory() *Pod {
	if !p.MemoryOnly || !p.WantsOOMResize() {
		return nil
	}
	only := *p
	only.Containers = slices.Clone(p.Containers)
	for i := range only.Containers {
		c := &only.Containers[i]
		grows := c.Observed && !c.OOM.Ended.IsZero() && c.growsMemory()
		for k := range resources.Kind(resources.Kinds) {
			if k != resources.Memory || !grows {
				c.Target.Requests, c.Target.Limits = c.Target.Requests.Without(k), c.Target.Limits.Without(k)
			}
		}
	}
	return &only
}

// OnlyOOM returns only the resizes that add memory after out-of-memory kills, without evictions.
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

// needsNoBudget reports whether a resize is made even without budget. It still reduces the budget of
// others, as in the reference VPA.
func (s DecisionInput) needsNoBudget(p *Pod) bool {
	return p.IsOOMResize() || s.Config.FreeResizes && !p.WouldRestart()
}

// nodeRefuses is false for a pod that needs memory on a node with static CPU: there the CPU caused
// the refusal, and memory alone can still be requested.
func (s DecisionInput) nodeRefuses(p *Pod) bool {
	return s.State.NodeRefuses(p) && (!p.WantsOOMResize() || !p.CPURefused())
}
