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

// ClassOf returns the class that containers, all of their pod, give it.
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

// keepBurstable changes one amount of a result that would make a Burstable pod Guaranteed, which no
// resize can do: a CPU limit that follows its request becomes a millicore larger, or else a CPU request
// a millicore smaller. Where neither is allowed, memory takes the place of CPU. Bounds of rules and
// LimitRanges hold: where nothing else is possible, the result stays as it is.
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
		slices.SortFunc(order, func(a, b int) int { // the order of the containers must not matter
			return cmp.Or(cmp.Compare(after[b].Limits.Value(k), after[a].Limits.Value(k)), cmp.Compare(after[a].Name, after[b].Name))
		})
		for _, i := range order {
			if r.Containers[i].separated(k, rule(after[i].Name), after, i, ranges) {
				return
			}
		}
	}
}

// appliedTo returns what a container has with what it gets.
func (f Fitted) appliedTo(c Container) Container {
	for k := range resources.Kind(resources.Kinds) {
		if a, ok := f.Requests.Get(k); ok {
			c.Requests = c.Requests.With(k, a)
		}
		if a, ok := f.Limits.Get(k); ok {
			c.Limits = c.Limits.With(k, a)
		}
		if f.WithoutLimit[k] {
			c.Limits = c.Limits.Without(k)
		}
	}
	return c
}

// separated sets the request of a container apart from its limit, which equals it, and reports whether
// it could.
func (f *Fitted) separated(k resources.Kind, rule Rule, all []Container, at int, ranges Ranges) bool {
	request, written := f.Requests.Get(k)
	if !written {
		return false
	}
	requests, limits := resources.Amount(0), resources.Amount(0)
	for _, c := range all {
		requests, limits = requests.Add(c.Requests.Value(k)), limits.Add(c.Limits.Value(k))
	}
	limit := all[at].Limits.Value(k)
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

// separation is by how much a request becomes smaller than its limit: a millicore, or a mebibyte where that is
// little of it, else a byte.
func separation(k resources.Kind, request resources.Amount) resources.Amount {
	const mebibyte, little = 1 << 20, 16
	if k == resources.Memory && request >= little*mebibyte {
		return mebibyte
	}
	return 1
}
