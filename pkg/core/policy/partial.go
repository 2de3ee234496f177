package policy

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// Whole is all of the way, in millionths.
const Whole resources.Amount = 1e6

// Partial returns what a container gets that goes so many millionths of the way from what
// it has to what it would get of kind k. The limit goes exactly as far as the request
// does once that is rounded, so that both stay within what LimitRanges allow, their
// ratio included, because both ends do; and a limit stays at or above its request.
// Requests are rounded down, so that together the containers of a pod take no more than
// their part. A limit that the container does not have yet comes in the proportion to
// the request in which it would.
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
