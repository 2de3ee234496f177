package portion

import (
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
)

// Whole is all of the way, in millionths.
const Whole amount.Amount = 1e6

// Of returns what a container gets that goes so many millionths of the way from what
// it has to what it would get of kind k. Requests and limits go as far as each other,
// so they stay within what LimitRanges allow, because both ends do; and a limit stays
// at or above its request. Both are rounded down, so that together the containers of a
// pod take no more than their part. A limit that the container does not have yet comes
// in the proportion to the request in which it would.
func Of(k amount.Kind, millionths amount.Amount, has policy.Container, gets policy.Fitted) policy.Fitted {
	whole, asked := gets.Requests.Get(k)
	if asked {
		gets.Requests = gets.Requests.With(k, between(has.Requests.Value(k), whole, millionths))
	}
	limit, limited := gets.Limits.Get(k)
	switch before := has.Limits.Value(k); {
	case !limited:
	case before > 0:
		gets.Limits = gets.Limits.With(k, between(before, limit, millionths))
	case whole > 0:
		part, _ := limit.Proportion(gets.Requests.Value(k), whole)
		gets.Limits = gets.Limits.With(k, part)
	}
	return gets
}

func between(from, to, millionths amount.Amount) amount.Amount {
	if to >= from {
		by, _ := (to - from).Proportion(millionths, Whole)
		return from + by
	}
	by, _ := (from - to).ProportionUp(millionths, Whole)
	return from - by
}
