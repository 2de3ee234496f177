package rollout

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Change is what is noted on a pod before it is resized, so that any process can judge the
// change and take it back.
type Change struct {
	// At is when the resize was sent. When the node has acted later, it is that time: the
	// observation begins then.
	At      time.Time
	Pending bool // deferred: the node has not begun
	Ready   bool // the pod was ready before
	// Generation of the pod's spec before the change; 0: not known. As long as the pod has it,
	// the change was not made.
	Generation int64
	// Harm is what the change did; it is noted before the change is taken back, so that a process
	// that ends amid that does not leave it half done. Empty: it did none that is known.
	Harm       Harm
	Containers []Sizing
}

// Sizing is the change of one container.
type Sizing struct {
	From     policy.Container // what its spec asked for, with its name
	To       policy.Container // what was written; a kind that is absent stays
	Restarts int              // how often it had been restarted
}

// lowersRequest reports whether the request of a kind was lowered.
func (c *Sizing) lowersRequest(k resources.Kind) bool {
	to, written := c.To.Requests.Get(k)
	from, had := c.From.Requests.Get(k)
	return written && had && to < from
}

// lowersLimit reports whether the limit of a kind was lowered, or is new.
func (c *Sizing) lowersLimit(k resources.Kind) bool {
	to, written := c.To.Limits.Get(k)
	from, had := c.From.Limits.Get(k)
	return written && (!had || to < from)
}

func (c *Sizing) lowers(k resources.Kind) bool { return c.lowersRequest(k) || c.lowersLimit(k) }

func (c *Sizing) lowersAny() bool { return c.lowers(resources.CPU) || c.lowers(resources.Memory) }

// lowers reports whether the change can do harm: only what was lowered can.
func (c *Change) lowers() bool {
	return slices.ContainsFunc(c.Containers, func(s Sizing) bool { return s.lowersAny() })
}

// Renewed returns what is to be noted when a pod whose change c goes on to be observed is
// changed once more, as by memory after an out-of-memory kill: the sizes before c stay those
// that would be given back. Judge goes first, so that the kill counts if c led to it.
func (c Change) Renewed(next Change) Change {
	next.Ready = next.Ready || c.Ready
	next.Containers = slices.Clone(next.Containers)
	for _, old := range c.Containers {
		i := slices.IndexFunc(next.Containers, func(s Sizing) bool { return s.From.Name == old.From.Name })
		if i < 0 {
			next.Containers = append(next.Containers, old)
			continue
		}
		s := &next.Containers[i]
		for k := range resources.Kind(resources.Kinds) {
			if old.To.Requests.Has(k) || old.To.Limits.Has(k) {
				s.From.Requests, s.From.Limits = copied(k, s.From.Requests, old.From.Requests), copied(k, s.From.Limits, old.From.Limits)
			}
			if !s.To.Requests.Has(k) {
				s.To.Requests = copied(k, s.To.Requests, old.To.Requests)
			}
			if !s.To.Limits.Has(k) {
				s.To.Limits = copied(k, s.To.Limits, old.To.Limits)
			}
		}
	}
	slices.SortStableFunc(next.Containers, func(a, b Sizing) int { return cmp.Compare(a.From.Name, b.From.Name) })
	return next
}

// copied returns into with the amount that from has of a kind, or with none.
func copied(k resources.Kind, into, from resources.List) resources.List {
	if a, ok := from.Get(k); ok {
		return into.With(k, a)
	}
	return into.Without(k)
}

// Running is one container of a pod as its spec is now. Containers that are never sized
// count for the class of the pod.
type Running struct {
	policy.Container
	Restarts [resources.Kinds]bool // changing this kind restarts it
}

// RevertSizes returns what the containers of a pod get when the change is taken back: each
// resource the maximum of what it was and what it is now, so that nothing is lowered. It is
// empty if there is nothing to give. A container is restarted only for OOMKill and Restart:
// it was not working anyway.
//
// A limit that the change brought cannot be removed from a running pod. Where all would
// make the pod Guaranteed, which a running pod cannot become, one request stays one unit
// below its limit.
func (c *Change) RevertSizes(now []Running, why Harm) (gets []policy.ContainerTarget) {
	after := make([]policy.Container, len(now))
	for i, has := range now {
		after[i] = has.Container
		at := slices.IndexFunc(c.Containers, func(s Sizing) bool { return s.From.Name == has.Name })
		if at < 0 {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if has.Restarts[k] && why != OOMKill && why != Restart {
				continue
			}
			from := c.Containers[at].From
			after[i].Requests, after[i].Limits = larger(k, after[i].Requests, from.Requests), larger(k, after[i].Limits, from.Limits)
		}
	}
	keepClass(now, after)
	for i, has := range now {
		f := policy.ContainerTarget{Name: has.Name}
		for k := range resources.Kind(resources.Kinds) {
			f.Requests, f.Limits = written(k, f.Requests, has.Requests, after[i].Requests), written(k, f.Limits, has.Limits, after[i].Limits)
		}
		if !f.Requests.Empty() || !f.Limits.Empty() {
			gets = append(gets, f)
		}
	}
	return gets
}

// About reports whether a harm is about a kind of resource: an OOM kill about memory, throttling and
// pressure about CPU, all others about both.
func (h Harm) About(k resources.Kind) bool {
	switch h {
	case OOMKill:
		return k == resources.Memory
	case Throttle, Pressure:
		return k == resources.CPU
	}
	return true
}

// Needs returns the amounts of the kinds that a harm is about.
func (h Harm) Needs(gets []policy.ContainerTarget) (needed []policy.ContainerTarget) {
	for _, f := range gets {
		for k := range resources.Kind(resources.Kinds) {
			if !h.About(k) {
				f.Requests, f.Limits = f.Requests.Without(k), f.Limits.Without(k)
			}
		}
		if !f.Requests.Empty() || !f.Limits.Empty() {
			needed = append(needed, f)
		}
	}
	return needed
}

// larger returns has with the amount of a kind that was, if that is larger. What has no
// amount now stays so: without a limit it has more than any.
func larger(k resources.Kind, has, was resources.List) resources.List {
	if now, ok := has.Get(k); ok && was.Value(k) > now {
		return has.With(k, was.Value(k))
	}
	return has
}

// written returns into with the amount of a kind if it differs from what is there.
func written(k resources.Kind, into, has, gets resources.List) resources.List {
	if a, ok := gets.Get(k); ok && a != has.Value(k) {
		return into.With(k, a)
	}
	return into
}

// keepClass takes one unit back from a request that was given back, if the pod would be
// Guaranteed by that and is not.
func keepClass(now []Running, after []policy.Container) {
	before := make([]policy.Container, len(now))
	for i, has := range now {
		before[i] = has.Container
	}
	if policy.ClassOf(before) == policy.Guaranteed || policy.ClassOf(after) != policy.Guaranteed {
		return
	}
	for i := range after {
		for k := range resources.Kind(resources.Kinds) {
			if a := after[i].Requests.Value(k); a > before[i].Requests.Value(k) {
				after[i].Requests = after[i].Requests.With(k, a-1)
				return
			}
		}
	}
}
