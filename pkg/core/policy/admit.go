package policy

import (
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Totals are the summed requests and limits of several containers.
type Totals struct{ Requests, Limits resources.List }

// InitTotals are the resources of init containers: not sized by Fit, but counted by LimitRanges.
type InitTotals struct {
	Sidecars Totals // restartable init containers
	Startup  Totals // maximum over the init steps, each with its earlier sidecars
}

// Admit returns wanted, moved toward base as far as needed for the LimitRanges to admit the pod. If
// they do not admit base either, it returns wanted unchanged. Both have one entry per container, in
// the order of the pod.
//
// Each constraint of a LimitRange is linear in requests and limits. So on the way from an admitted
// base, every point up to some fraction is admitted, and bisection finds it.
func (r Ranges) Admit(pod Pod, base, wanted []ContainerTarget) []ContainerTarget {
	for k := range resources.Kind(resources.Kinds) {
		if !r.constrains(k) || r.admits(pod, wanted, k, true) || !r.admits(pod, base, k, false) {
			continue
		}
		wanted = r.furthestAdmitted(pod, base, wanted, k)
	}
	return wanted
}

func (r Ranges) furthestAdmitted(pod Pod, base, wanted []ContainerTarget, k resources.Kind) []ContainerTarget {
	admitted, refused := resources.Amount(0), FullFraction
	best := interpolateAll(pod, base, wanted, k, 0)
	for refused-admitted > 1 {
		middle := (admitted + refused) / 2
		if trial := interpolateAll(pod, base, wanted, k, middle); r.admits(pod, trial, k, true) {
			admitted, best = middle, trial
		} else {
			refused = middle
		}
	}
	for i := range best {
		f := &best[i]
		f.Notes = slices.DeleteFunc(slices.Clone(f.Notes), func(n Note) bool { return n.Kind == k && n.Refused() })
		request, limit := f.Requests.Value(k) != wanted[i].Requests.Value(k), f.Limits.Value(k) != wanted[i].Limits.Value(k)
		if request || limit {
			f.Notes = append(f.Notes, Note{k, HeldByRange})
		}
	}
	return best
}

// interpolateAll returns wanted with one kind at a fraction of the way from base, in millionths.
func interpolateAll(pod Pod, base, wanted []ContainerTarget, k resources.Kind, millionths resources.Amount) []ContainerTarget {
	moved := slices.Clone(wanted)
	for i, c := range pod.Containers {
		f := &moved[i]
		if millionths == 0 {
			f.Requests, f.Limits, f.WithoutLimit[k] = f.Requests.Without(k), f.Limits.Without(k), base[i].WithoutLimit[k]
			if a, ok := base[i].Requests.Get(k); ok {
				f.Requests = f.Requests.With(k, a)
			}
			if a, ok := base[i].Limits.Get(k); ok {
				f.Limits = f.Limits.With(k, a)
			}
		} else {
			*f = Interpolate(k, millionths, base[i].appliedTo(c), *f)
		}
		if f.Bounds.Target.Has(k) {
			request := f.appliedTo(c).Requests.Value(k)
			f.Bounds.Target = f.Bounds.Target.With(k, request)
			f.Bounds = ordered(f.Bounds, k)
		}
	}
	return moved
}

func (r Ranges) constrains(k resources.Kind) bool {
	return r.Container.constrains(k) || r.Pod.constrains(k)
}

func (r Range) constrains(k resources.Kind) bool {
	return r.Min.Value(k) > 0 || r.Max.Value(k) > 0 || r.MaxRatio.Value(k) > 0
}

// admits reports whether the LimitRanges admit a pod with a result, by the rules of the admission
// plugin. Amounts of the pod may be rounded up from fractions, see Pod.Rounded. With certain, the
// result must be admitted for all possible fractions, otherwise for some.
func (r Ranges) admits(pod Pod, result []ContainerTarget, k resources.Kind, certain bool) bool {
	var sum Totals
	slack := pod.Rounded.Value(k)
	for i, c := range pod.Containers {
		after := result[i].appliedTo(c)
		if !r.Container.admits(Totals{after.Requests, after.Limits}, k, min(slack, 1), certain) {
			return false
		}
		sum = sum.Plus(Totals{after.Requests, after.Limits})
	}
	return r.Pod.admits(sum.Plus(pod.InitTotals.Sidecars).Larger(pod.InitTotals.Startup), k, slack, certain)
}

// admits reports whether a range admits totals that may be up to slack below the given amounts.
func (r Range) admits(s Totals, k resources.Kind, slack resources.Amount, certain bool) bool {
	request, limit := s.Requests.Value(k), s.Limits.Value(k)
	hasLimit := s.Limits.Has(k)
	minRequest, minLimit := max(request-slack, 0), max(limit-slack, 0)
	maxRequest, maxLimit := request, limit
	if !certain {
		minRequest, minLimit, maxRequest, maxLimit = maxRequest, maxLimit, minRequest, minLimit
	}
	if bound := r.Min.Value(k); bound > 0 && (minRequest < bound || hasLimit && minLimit < bound) {
		return false
	}
	if bound := r.Max.Value(k); bound > 0 && (!hasLimit || maxRequest > bound || maxLimit > bound) {
		return false
	}
	if ratio := r.MaxRatio.Value(k); ratio > 0 {
		smallest, _ := maxLimit.ProportionUp(1000, ratio)
		return request > 0 && limit > 0 && minRequest >= smallest
	}
	return true
}

// Plus returns the sum of two sizes.
func (s Totals) Plus(more Totals) Totals {
	return Totals{s.Requests.Plus(more.Requests), s.Limits.Plus(more.Limits)}
}

// Larger returns the larger amounts of two sizes.
func (s Totals) Larger(other Totals) Totals {
	return Totals{s.Requests.Larger(other.Requests), s.Limits.Larger(other.Limits)}
}
