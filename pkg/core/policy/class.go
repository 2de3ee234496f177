package policy

import (
	"cmp"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Class is the QoS class of a pod. It is immutable while the pod runs.
type Class uint8

// QoS classes.
const (
	BestEffort Class = iota
	Burstable
	Guaranteed
)

// ClassOf returns the QoS class of a pod with these containers.
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

// keepBurstable changes one amount of a result that would make a Burstable pod Guaranteed, because
// a resize cannot change the QoS class: a CPU limit that follows its request grows by 1 millicore,
// or a CPU request shrinks by 1, or else memory changes. Rules or LimitRanges may forbid them all.
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
		slices.SortFunc(order, func(a, b int) int { // independent of container order
			return cmp.Or(cmp.Compare(after[b].Limits.Value(k), after[a].Limits.Value(k)), cmp.Compare(after[a].Name, after[b].Name))
		})
		for _, i := range order {
			if r.Containers[i].separate(k, rule(after[i].Name), after, i, ranges) {
				return
			}
		}
	}
}

func (f ContainerTarget) appliedTo(c Container) Container {
	c.Requests, c.Limits = c.Requests.Override(f.Requests), c.Limits.Override(f.Limits)
	for k, without := range f.WithoutLimit {
		if without {
			c.Limits = c.Limits.Without(resources.Kind(k))
		}
	}
	return c
}

// separate makes the request of container i differ from its limit, if rule and LimitRanges allow.
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

// separation returns the difference between a limit and a reduced request: one millicore, one byte,
// or one mebibyte for requests of at least 16Mi to keep them readable.
func separation(k resources.Kind, request resources.Amount) resources.Amount {
	const mebibyte = 1 << 20
	if k == resources.Memory && request >= 16*mebibyte {
		return mebibyte
	}
	return 1
}

// FullFraction is 100%, in millionths.
const FullFraction resources.Amount = 1e6

// Interpolate returns resources at a fraction, in millionths, of the way from current to target of
// kind k. Requests are rounded down, so that the containers of a pod do not exceed their part. The
// limit moves by the exact fraction of the rounded request. So both respect LimitRanges, including
// the ratio, and the limit is not below the request, because this holds at both ends. A new limit
// keeps the proportion to the request in target.
func Interpolate(k resources.Kind, millionths resources.Amount, current Container, target ContainerTarget) ContainerTarget {
	moved, way := millionths, FullFraction // fraction by which the limit moves
	from, to := current.Requests.Value(k), target.Requests.Value(k)
	if target.Requests.Has(k) {
		request := interpolateAmount(from, to, millionths, FullFraction)
		target.Requests = target.Requests.With(k, request)
		if from != to {
			moved, way = max(request-from, from-request), max(to-from, from-to)
		}
	}
	limit, limited := target.Limits.Get(k)
	switch before := current.Limits.Value(k); {
	case !limited:
	case before > 0:
		target.Limits = target.Limits.With(k, interpolateAmount(before, limit, moved, way))
	case to > 0:
		part, _ := limit.Proportion(target.Requests.Value(k), to)
		target.Limits = target.Limits.With(k, part)
	}
	return target
}

// interpolateAmount returns the amount at a fraction of the way between two amounts, rounded down.
func interpolateAmount(from, to, moved, way resources.Amount) resources.Amount {
	if to >= from {
		by, _ := (to - from).Proportion(moved, way)
		return from + by
	}
	by, _ := (from - to).ProportionUp(moved, way)
	return from - by
}
