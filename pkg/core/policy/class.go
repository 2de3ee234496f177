package policy

import (
	"cmp"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Class is the quality-of-service class of a pod. It never changes while the pod runs.
type Class uint8

// The classes.
const (
	BestEffort Class = iota
	Burstable
	Guaranteed
)

// ClassOf returns the class of a pod with these containers.
func ClassOf(containers []Container) Class {
	sized, equal := false, true
	for _, c := range containers {
		for k := range resources.Kind(resources.Kinds) {
			request, limit := c.Requests.Value(k), c.Limits.Value(k)
			sized = sized || request > 0 || limit > 0
			equal = equal && limit > 0 && (request == limit || !c.Requests.Has(k))
		}
	}
	switch {
	case !sized:
		return BestEffort
	case equal:
		return Guaranteed
	}
	return Burstable
}

// keepBurstable changes one amount of a result that would make a Burstable pod Guaranteed, because a resize
// cannot change the class. A CPU limit that follows its request grows by a millicore, or a CPU request shrinks
// by one. If rules or LimitRanges allow neither, the same is tried with memory. If they do not allow that
// either, the result stays as it is.
func keepBurstable(pod Pod, r Result, rules Rules, ranges Ranges) {
	after := make([]Container, len(r.Containers))
	for i, f := range r.Containers {
		after[i] = f.appliedTo(pod.Containers[i])
	}
	if ClassOf(after) != Guaranteed {
		return
	}
	rule := rules.Lookup()
	for k := range resources.Kind(resources.Kinds) {
		order := make([]int, len(after))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { // independent of the order of the containers
			return cmp.Or(cmp.Compare(after[b].Limits.Value(k), after[a].Limits.Value(k)), cmp.Compare(after[a].Name, after[b].Name))
		})
		for _, i := range order {
			if r.Containers[i].separate(k, rule(after[i].Name), after, i, ranges) {
				return
			}
		}
	}
}

// appliedTo returns the container with the fitted amounts in place of its own.
func (f ContainerTarget) appliedTo(c Container) Container {
	c.Requests, c.Limits = c.Requests.Override(f.Requests), c.Limits.Override(f.Limits)
	for k, without := range f.WithoutLimit {
		if without {
			c.Limits = c.Limits.Without(resources.Kind(k))
		}
	}
	return c
}

// separate makes the request of container i differ from its limit, which equals it, and reports whether the
// rule and the LimitRanges allow that.
func (f *ContainerTarget) separate(k resources.Kind, rule Rule, all []Container, i int, ranges Ranges) bool {
	request, sized := f.Requests.Get(k)
	if !sized {
		return false
	}
	requests, limits := resources.Amount(0), resources.Amount(0)
	for _, c := range all {
		requests, limits = requests.Add(c.Requests.Value(k)), limits.Add(c.Limits.Value(k))
	}
	limit := all[i].Limits.Value(k)
	if f.Limits.Has(k) {
		if outside(ranges.Container, k, request, limit+1) || outside(ranges.Pod, k, requests, limits+1) {
			return false
		}
		f.Limits = f.Limits.With(k, limit+1)
		return true
	}
	step := separation(k, request)
	less := request - step
	if less < max(rule.Min.Value(k), 1) || outside(ranges.Container, k, less, limit) || outside(ranges.Pod, k, requests-step, limits) {
		return false
	}
	f.Requests = f.Requests.With(k, less)
	if f.Bounds.Target.Has(k) {
		f.Bounds.Target = f.Bounds.Target.With(k, less)
		f.Bounds = ordered(f.Bounds, k)
	}
	return true
}

// separation returns the difference between a limit and a reduced request: a millicore, a byte, or a mebibyte
// for requests of at least 16Mi, which stay readable.
func separation(k resources.Kind, request resources.Amount) resources.Amount {
	const mebibyte = 1 << 20
	if k == resources.Memory && request >= 16*mebibyte {
		return mebibyte
	}
	return 1
}

// Whole is all of the way, in millionths.
const Whole resources.Amount = 1e6

// Partial returns what a container gets that goes so many millionths of the way from what it has to what it would get
// of kind k. The limit goes exactly as far as the request does once that is rounded, so that both stay within what
// LimitRanges allow, their ratio included, because both ends do; and a limit stays at or above its request. Requests
// are rounded down, so that together the containers of a pod take no more than their part. A limit that the container
// does not have yet comes in the proportion to the request in which it would.
func Partial(k resources.Kind, millionths resources.Amount, has Container, gets ContainerTarget) ContainerTarget {
	moved, way := millionths, Whole // how far the limit goes
	from, to := has.Requests.Value(k), gets.Requests.Value(k)
	if gets.Requests.Has(k) {
		request := between(from, to, millionths, Whole)
		gets.Requests = gets.Requests.With(k, request)
		if from != to {
			moved, way = max(request-from, from-request), max(to-from, from-to)
		}
	}
	limit, limited := gets.Limits.Get(k)
	switch before := has.Limits.Value(k); {
	case !limited:
	case before > 0:
		gets.Limits = gets.Limits.With(k, between(before, limit, moved, way))
	case to > 0:
		part, _ := limit.Proportion(gets.Requests.Value(k), to)
		gets.Limits = gets.Limits.With(k, part)
	}
	return gets
}

// between returns what is a part of the way from one amount to another, rounded down.
func between(from, to, moved, way resources.Amount) resources.Amount {
	if to >= from {
		by, _ := (to - from).Proportion(moved, way)
		return from + by
	}
	by, _ := (from - to).ProportionUp(moved, way)
	return from - by
}
