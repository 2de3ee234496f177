package actuate

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
)

// Of a new memory limit so much must be left above what is used: usage is some
// seconds old, and a container that meets its limit is killed.
const spare = 0.1

// spared returns a change that cuts no memory limit to less than what is used and a
// spare: such a container goes down by a part, or keeps its memory. Under a SizingPolicy its
// limit alone is lifted, to what is used and a margin. It is an error if
// nothing is left that is worth a resize. A usage that is not known is no reason to
// wait: the node looks, too.
func (c *Cluster) spared(ctx context.Context, change Change) (Change, error) {
	if c.Usage == nil {
		return change, nil
	}
	var used map[string]resources.Amount
	var inUse error
	current := convert.Pod(change.Target)
	for _, has := range current.Containers {
		at := slices.IndexFunc(change.Containers, func(f policy.ContainerTarget) bool { return f.Name == has.Name })
		if at < 0 {
			continue
		}
		limit, limited := change.Containers[at].Limits.Get(resources.Memory)
		if !limited || !has.Limits.Has(resources.Memory) || limit >= has.Limits.Value(resources.Memory) {
			continue
		}
		if used == nil {
			var err error
			if used, err = c.Usage.Memory(ctx, change.Target.Namespace, change.Target.Name); err != nil {
				klog.FromContext(ctx).V(4).Info("A memory limit is cut without knowing the usage", "pod", klog.KObj(change.Target), "reason", err)
				return change, nil
			}
		}
		if used[has.Name] <= limit.Scale(1-spare) {
			continue
		}
		if inUse == nil {
			inUse = fmt.Errorf("%w: container %s uses %d bytes, its new limit is %d", ErrInUse, has.Name, used[has.Name], limit)
			change.Containers = slices.Clone(change.Containers)
		}
		if change.Observed {
			change.Containers[at] = rollout.LiftMemory(has, change.Containers[at], used[has.Name], rollout.MemoryMargin)
		} else {
			change.Containers[at] = lowered(has, change.Containers[at], used[has.Name].Scale(1/(1-spare)))
		}
	}
	if inUse != nil && !c.worthwhile(current.Containers, change.Containers) {
		return change, inUse
	}
	return change, nil
}

// lowered goes as far from what a container has to what it would get as its memory limit
// may fall, with the request in proportion; nowhere if the limit is that low already.
func lowered(has policy.Container, gets policy.ContainerTarget, least resources.Amount) policy.ContainerTarget {
	before, limit := has.Limits.Value(resources.Memory), gets.Limits.Value(resources.Memory)
	if least >= before {
		gets.Requests, gets.Limits = gets.Requests.Without(resources.Memory), gets.Limits.Without(resources.Memory)
		return gets
	}
	part, _ := (before - least).Proportion(policy.Whole, before-limit)
	return policy.Partial(resources.Memory, part, has, gets)
}

// worthwhile reports whether any amount of a container changes by the threshold.
func (c *Cluster) worthwhile(containers []policy.Container, gets []policy.ContainerTarget) bool {
	return slices.ContainsFunc(containers, func(has policy.Container) bool {
		at := slices.IndexFunc(gets, func(f policy.ContainerTarget) bool { return f.Name == has.Name })
		return at >= 0 && (c.differs(has.Requests, gets[at].Requests) || c.differs(has.Limits, gets[at].Limits))
	})
}

func (c *Cluster) differs(has, gets resources.List) bool {
	for k := range resources.Kind(resources.Kinds) {
		if to, ok := gets.Get(k); ok && to != has.Value(k) && disruption.Relative(k, has.Value(k), to) >= c.Threshold {
			return true
		}
	}
	return false
}
