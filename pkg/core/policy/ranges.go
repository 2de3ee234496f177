package policy

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// Range is what LimitRange items of one type demand. An absent or zero amount
// is no demand.
type Range struct {
	Min, Max resources.List
	Default  resources.List // the limit of a container that has none
	MaxRatio resources.List // of a limit to its request, in thousandths
}

// And returns the combination of two ranges: the highest minimum, the lowest
// maximum and the lowest default. The order does not matter.
func (r Range) And(other Range) Range {
	for k := range resources.Kind(resources.Kinds) {
		if a := other.Min.Value(k); a > r.Min.Value(k) {
			r.Min = r.Min.With(k, a)
		}
		r.Max = lowest(r.Max, other.Max, k)
		r.Default = lowest(r.Default, other.Default, k)
		r.MaxRatio = lowest(r.MaxRatio, other.MaxRatio, k)
	}
	return r
}

func lowest(into, other resources.List, k resources.Kind) resources.List {
	if a := other.Value(k); a > 0 && (into.Value(k) <= 0 || a < into.Value(k)) {
		return into.With(k, a)
	}
	return into
}

// Ranges are the combined LimitRanges of one namespace. The zero value demands
// nothing.
type Ranges struct {
	Container Range
	Pod       Range // its Default is not used
}

// limitBasis is the limit that a new limit is derived from: the container's
// own, or else the default of the namespace; 0 if there is neither.
func (r Ranges) limitBasis(c Container, k resources.Kind) resources.Amount {
	if own := c.Limits.Value(k); own > 0 {
		return own
	}
	return max(r.Container.Default.Value(k), 0)
}

// requestBounds translates the container range into bounds on the request of
// c. A limit grows with its request, so a bound on the limit is also a bound on
// the request; the request itself must not be below the minimum either. A
// container without limit has no maximum. Where the limit is kept the bounds
// hold for the request alone, which must also not become too small for its limit.
func (r Ranges) requestBounds(c Container, k resources.Kind, keepsLimit bool) (least, most resources.Amount) {
	lowest, highest := r.Container.Min.Value(k), r.Container.Max.Value(k)
	basis, request := r.limitBasis(c, k), c.Requests.Value(k)
	if keepsLimit {
		if ratio := r.Container.MaxRatio.Value(k); ratio > 0 {
			smallest, _ := basis.ProportionUp(1000, ratio)
			lowest = max(lowest, smallest)
		}
		return lowest, highest
	}
	return max(boundOnRequest(lowest, basis, request), lowest), boundOnRequest(highest, basis, request)
}

func boundOnRequest(bound, limit, request resources.Amount) resources.Amount {
	switch {
	case bound <= 0 || limit <= 0:
		return 0
	case request <= 0:
		return bound
	}
	translated, _ := request.Proportion(bound, limit)
	return max(translated, 1) // 0 would mean "no bound"
}
