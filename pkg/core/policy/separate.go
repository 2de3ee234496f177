package policy

import (
	"maps"

	"loadline.dev/loadline/pkg/core/resources"
)

// With separate memory limits, the target is the request, and the upper bound is the demand that
// the limit must protect:
//
// 	limit = declared limit / declared request x max(upper bound, target)
//
// within the rule and the LimitRanges. So a request that follows usage never lowers a limit. The
// declared proportion is used because each change alters the current one.
//
// A request that equals its limit gets the protected amount for both, so the pod keeps its QoS
// class. If a LimitRange would reject the pod otherwise, no request is lowered. A missing limit
// stays missing. With RequestsOnly the limit stays unchanged and caps the request.

// Proportion is a memory request and limit, in bytes. A scaled limit keeps their ratio.
type Proportion struct{ Request, Limit resources.Amount }

// Known reports whether both are set and the limit is not below the request.
func (p Proportion) Known() bool { return p.Request > 0 && p.Limit >= p.Request }

// Looser reports whether the ratio of limit to request is larger than in another proportion.
func (p Proportion) Looser(than Proportion) bool {
	return float64(p.Limit)*float64(than.Request) > float64(than.Limit)*float64(p.Request)
}

// proportionTolerance is the relative rounding error of the proportion of current amounts.
const proportionTolerance = 0.01

// MemoryProportion returns the declared proportion if recorded, else the current one; missing: 0.
func (c Container) MemoryProportion() Proportion {
	if c.declaredHolds() {
		return c.Declared
	}
	return Proportion{c.Requests.Value(resources.Memory), c.Limits.Value(resources.Memory)}
}

// declaredHolds rejects a recorded proportion above the current one: a request that follows usage
// can only increase it, and an annotation must not enlarge the pod.
func (c Container) declaredHolds() bool {
	d, request, limit := c.Declared, c.Requests.Value(resources.Memory), c.Limits.Value(resources.Memory)
	return d.Known() && request > 0 && float64(d.Limit)*float64(request) <= (1+proportionTolerance)*float64(limit)*float64(d.Request)
}

// LimitSpan is the range of memory limits, in bytes, that need no immediate change. The zero value
// is a limit that follows its request.
type LimitSpan struct{ Min, Max resources.Amount }

// Ratios to the desired amount within which no immediate change is needed, as in recipe loadline.
const (
	minLimitRatio = 0.95
	maxLimitRatio = 1.3
	inThousandths = 1000
)

// Separate reports whether the memory limit of a container is independent of its request.
func (r Rule) Separate() bool { return r.SeparateMemoryLimit && !r.Off && !r.RequestsOnly }

// withDeclaredMemory replaces the memory of containers with a recommendation by the memory of their
// template, where an annotation of the pod records it. The result has only containers.
func withDeclaredMemory(pod Pod, recommendation map[string]resources.Bounds, rules Rules) Pod {
	var declared []Container
	for i, c := range pod.Containers {
		if !c.declaredHolds() { // the common case
			continue
		}
		if rule := rules.For(c.Name); rule.Off || rule.RequestsOnly || rule.shares(resources.Memory) || !recommendation[c.Name].Target.Has(resources.Memory) {
			continue
		}
		if declared == nil {
			declared = append(declared, pod.Containers...)
		}
		kept := c.MemoryProportion()
		declared[i].Requests, declared[i].Limits = c.Requests.With(resources.Memory, kept.Request), c.Limits.With(resources.Memory, kept.Limit)
	}
	if declared == nil {
		return pod
	}
	return Pod{Containers: declared}
}

// fitSeparately is Fit for separate memory limits: protected amounts first, then lower requests.
func fitSeparately(pod Pod, recommendation map[string]resources.Bounds, rules Rules, ranges Ranges) Result {
	protecting, rule := make(map[string]resources.Bounds, len(recommendation)), rules.Lookup()
	maps.Copy(protecting, recommendation)                    // maps.Clone would make the argument of Fit escape for all pods
	follows := make([]resources.Amount, len(pod.Containers)) // lowered requests, 0 keeps the request of the limit
	proportions := make([]Proportion, len(pod.Containers))
	for i, c := range pod.Containers {
		b := recommendation[c.Name]
		target, recommended := b.Target.Get(resources.Memory)
		if !recommended || rule(c.Name).shares(resources.Memory) {
			continue
		}
		protected, limit := max(b.Upper.Value(resources.Memory), target), ranges.limitBasis(c, resources.Memory)
		if rule(c.Name).Separate() && limit > 0 {
			b.Target = b.Target.With(resources.Memory, protected)
			if request := c.Requests.Value(resources.Memory); limit > request && request > 0 {
				follows[i], proportions[i] = target, Proportion{request, limit}
			} else {
				target = protected
				b.Lower = b.Lower.With(resources.Memory, max(b.Lower.Value(resources.Memory), protected.Scale(minLimitRatio)))
			}
		}
		b.Upper = b.Upper.With(resources.Memory, max(protected, target.Scale(maxLimitRatio)))
		protecting[c.Name] = b
	}
	first := newProblem(pod, protecting, rules, ranges)
	p, result := first.solveJoining()
	p.lowerRequests(result.Containers, follows, proportions)
	return result
}

func (p *problem) lowerRequests(out []ContainerTarget, follows []resources.Amount, proportions []Proportion) {
	const k = resources.Memory
	lowered, requests, limits := make([]resources.Amount, len(out)), resources.Amount(0), resources.Amount(0)
	for i := range out {
		f, part := &out[i], &p.parts[i]
		request, limit := amountAfter(f.Requests, part.container.Requests, k), amountAfter(f.Limits, part.container.Limits, k)
		if follows[i] > 0 {
			f.Declared = proportions[i]
			f.MemoryLimit = LimitSpan{limit.Scale(minLimitRatio), limit.Scale(maxLimitRatio)}
			minimum := max(p.ranges.Container.Min.Value(k), part.rule.Min.Value(k), follows[i], 1)
			if ratio := p.ranges.Container.MaxRatio.Value(k); ratio > 0 {
				smallest, _ := limit.ProportionUp(inThousandths, ratio)
				minimum = max(minimum, smallest)
			}
			request = min(request, minimum)
			lowered[i] = request
		}
		requests, limits = requests.Add(request), limits.Add(limit)
	}
	if outside(p.ranges.Pod, k, requests, limits) {
		return
	}
	for i, request := range lowered {
		if request > 0 {
			out[i].Requests = out[i].Requests.With(k, request)
			out[i].Bounds.Target = out[i].Bounds.Target.With(k, request)
			out[i].Bounds = ordered(out[i].Bounds, k)
		}
	}
}

func amountAfter(written, current resources.List, k resources.Kind) resources.Amount {
	if a, ok := written.Get(k); ok {
		return a
	}
	return max(current.Value(k), 0)
}
