package disruption

import (
	"slices"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Recommended reports whether the container has a recommendation.
func (c *Container) Recommended() bool { return !c.Target.Bounds.Target.Empty() }

// Changes reports whether the fitted values of kind k differ from others.
func (c *Container) Changes(k resources.Kind, from policy.Container) bool {
	return differs(c.Target.Requests, from.Requests, k) || differs(c.Target.Limits, from.Limits, k)
}

// differs reports whether wanted names an amount of kind k that has lacks.
func differs(wanted, has resources.List, k resources.Kind) bool {
	a, ok := wanted.Get(k)
	if !ok {
		return false
	}
	b, ok := has.Get(k)
	return !ok || a != b
}

// Any, and what asks it, looks only at containers that the webhook may have seen: those that
// another webhook added later would not be sized by ours either.

// Changed reports whether the pod would get something else than it runs with.
func (p *Pod) Changed() bool {
	return p.Any(func(c *Container, k resources.Kind) bool { return c.Changes(k, c.Actual) })
}

// Asks reports whether a resize would write something new into the spec.
func (p *Pod) Asks() bool {
	return p.Any(func(c *Container, k resources.Kind) bool { return c.Changes(k, c.Spec) })
}

// WouldRestart reports whether a resize would restart a container.
func (p *Pod) WouldRestart() bool {
	return p.Any(func(c *Container, k resources.Kind) bool {
		return c.Restarts[k] && (c.Changes(k, c.Actual) || c.Changes(k, c.Spec))
	})
}

// RestartsFor reports whether giving f to the container restarts it.
func (c *Container) RestartsFor(f policy.ContainerTarget) bool {
	for k := range resources.Kind(resources.Kinds) {
		if c.Restarts[k] && (differs(f.Requests, c.Spec.Requests, k) || differs(f.Limits, c.Spec.Limits, k)) {
			return true
		}
	}
	return false
}

// Any reports whether something holds for one of the kinds of one of the containers.
func (p *Pod) Any(holds func(*Container, resources.Kind) bool) bool {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Observed && (holds(c, resources.CPU) || holds(c, resources.Memory)) {
			return true
		}
	}
	return false
}

// Unanswered reports whether a resize was accepted and the node says nothing.
func (p *Pod) Unanswered() bool { return p.Resize == NotResizing && p.Changed() && !p.Asks() }

// Change is what a change of the pod would change, in requests and in memory limits that do
// not follow them.
func (p *Pod) Change() Change {
	c := Change{Before: Sizes{}, After: Sizes{}}
	for i := range p.Containers {
		one := &p.Containers[i]
		if !one.Observed {
			continue
		}
		c.Before[one.Spec.Name], c.After[one.Spec.Name] = one.Spec.Requests, one.After().Requests
		if limit, some := separateLimit(one.Target); some {
			name := one.Spec.Name + ofLimit
			c.Before[name] = resources.List{}.With(resources.Memory, one.Spec.Limits.Value(resources.Memory))
			c.After[name] = resources.List{}.With(resources.Memory, limit)
		}
	}
	return c
}

// separateLimit returns the memory limit that is to be written, if it does not follow its request.
func separateLimit(f policy.ContainerTarget) (limit resources.Amount, some bool) {
	if f.MemoryLimit == (policy.LimitSpan{}) {
		return 0, false
	}
	return f.Limits.Get(resources.Memory)
}

// Targets lists what the containers of the pod would get, those that the webhook
// did not see and those left alone excepted.
func (p *Pod) Targets() []policy.ContainerTarget {
	var all []policy.ContainerTarget
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Observed && (!c.Target.Requests.Empty() || !c.Target.Limits.Empty()) {
			all = append(all, c.Target)
		}
	}
	return all
}

// Part returns a pod that changes by a part of what it should, in millionths for each
// kind.
func (p *Pod) Part(of [resources.Kinds]resources.Amount) *Pod {
	part := *p
	part.Containers = slices.Clone(p.Containers)
	for i := range part.Containers {
		c := &part.Containers[i]
		for k, millionths := range of {
			if millionths < policy.Whole {
				c.Target = policy.Partial(resources.Kind(k), millionths, c.Spec, c.Target)
			}
		}
	}
	return &part
}

// KeepingCPU returns a pod that changes as it should, but keeps the CPU that it runs with,
// also where other CPU was asked for before, and refused.
func (p *Pod) KeepingCPU() *Pod {
	kept := *p
	kept.Containers = slices.Clone(p.Containers)
	for i := range kept.Containers {
		c := &kept.Containers[i]
		if c.Target.Requests.Has(resources.CPU) {
			c.Target.Requests = c.Target.Requests.With(resources.CPU, c.Actual.Requests.Value(resources.CPU))
		}
		if c.Target.Limits.Has(resources.CPU) {
			c.Target.Limits = c.Target.Limits.With(resources.CPU, c.Actual.Limits.Value(resources.CPU))
		}
	}
	return &kept
}

// TakesMemory reports whether a resize takes memory from a container. A kubelet
// refuses that while the memory is in use, or while it does not know the usage
// yet, and tries again by itself: no reason to evict a pod that works, which
// would come back with less than it uses.
func (p *Pod) TakesMemory() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		asked, limited := c.Spec.Limits.Get(resources.Memory)
		return limited && asked < c.Actual.Limits.Value(resources.Memory)
	})
}
