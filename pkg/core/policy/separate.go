package policy

import (
	"maps"

	"loadline.dev/loadline/pkg/core/resources"
)

// A VPA whose memory limits do not follow the requests recommends two amounts of memory: the
// target is what is requested, and the upper bound is what the limit must protect. The
// limit is what it would be if all of that were requested,
//
//	limit = declared limit / declared request x max(upper bound, target)
//
// within the rule and the LimitRanges, as ever, so a request that follows use never lowers a limit. It keeps the
// proportion of what the container was declared with: that of the present amounts is another one after each change.
//
// Requests stay with the limit where they must: one that equals its limit gets what is protected for both, so the pod
// keeps its class; and where a LimitRange refuses the pod otherwise no request of it is lowered. A limit that is not
// there stays away, and one that stands still (RequestsOnly) stands: then the request goes alone, up to the limit.

// Proportion is a memory request and limit, in bytes, in whose proportion a limit is kept.
type Proportion struct{ Request, Limit resources.Amount }

// Known reports whether it is a proportion of a request to a limit that is not below it.
func (p Proportion) Known() bool { return p.Request > 0 && p.Limit >= p.Request }

// Looser reports whether a limit is a larger multiple of its request than in another proportion.
func (p Proportion) Looser(than Proportion) bool {
	return float64(p.Limit)*float64(than.Request) > float64(than.Limit)*float64(p.Request)
}

// slightly is by what fraction the proportion of present amounts may be off, as they are rounded.
const slightly = 0.01

// MemoryProportion returns the proportion in which a memory limit of the container is kept, 0 for
// what it lacks: what it was declared with, where that is noted, else what it has.
func (c Container) MemoryProportion() Proportion {
	if c.declaredHolds() {
		return c.Declared
	}
	return Proportion{c.Requests.Value(resources.Memory), c.Limits.Value(resources.Memory)}
}

// declaredHolds reports whether what is noted is believed. What a pod says of itself must not make it larger: a request
// that follows use only ever makes the present proportion larger than the declared one.
func (c Container) declaredHolds() bool {
	d, request, limit := c.Declared, c.Requests.Value(resources.Memory), c.Limits.Value(resources.Memory)
	return d.Known() && request > 0 && float64(d.Limit)*float64(request) <= (1+slightly)*float64(limit)*float64(d.Request)
}

// LimitSpan are the memory limits of a container that need not be changed at once, in bytes.
// The zero value is that of a limit that follows its request.
type LimitSpan struct{ Least, Most resources.Amount }

// Limits and requests that are as much below or above what they should be need not be changed
// at once. They are those of recipe loadline.
const (
	leastLimit    = 0.95
	roomAbove     = 1.3
	inThousandths = 1000
)

// Separate reports whether the memory limit of a container does not follow its request.
func (r Rule) Separate() bool { return r.SeparateMemoryLimit && !r.Off && !r.RequestsOnly }

// asDeclared returns a pod whose containers that get memory have what they were declared with, where that is known.
func asDeclared(pod Pod, recommendation map[string]resources.Bounds, rules Rules) Pod {
	var declared []Container
	for i, c := range pod.Containers {
		if !c.declaredHolds() { // nearly always
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

// fitSeparately is Fit where memory limits do not follow the requests: first as if what is
// protected were requested, and then with lower requests.
func fitSeparately(pod Pod, recommendation map[string]resources.Bounds, rules Rules, ranges Ranges) Result {
	protecting, rule := make(map[string]resources.Bounds, len(recommendation)), rules.Lookup()
	maps.Copy(protecting, recommendation)                    // Clone would let the argument of Fit escape, of all pods
	follows := make([]resources.Amount, len(pod.Containers)) // the requests; 0: as that of the limit
	proportions := make([]Proportion, len(pod.Containers))
	for i, c := range pod.Containers {
		b := recommendation[c.Name]
		target, some := b.Target.Get(resources.Memory)
		if !some || rule(c.Name).shares(resources.Memory) {
			continue
		}
		protected, limit := max(b.Upper.Value(resources.Memory), target), ranges.limitBasis(c, resources.Memory)
		if rule(c.Name).Separate() && limit > 0 {
			b.Target = b.Target.With(resources.Memory, protected)
			if request := c.Requests.Value(resources.Memory); limit > request && request > 0 {
				follows[i], proportions[i] = target, Proportion{request, limit}
			} else {
				target = protected
				b.Lower = b.Lower.With(resources.Memory, max(b.Lower.Value(resources.Memory), protected.Scale(leastLimit)))
			}
		}
		b.Upper = b.Upper.With(resources.Memory, max(protected, target.Scale(roomAbove)))
		protecting[c.Name] = b
	}
	first := newProblem(pod, protecting, rules, ranges)
	p, result := first.fit()
	p.follow(result.Containers, follows, proportions)
	return result
}

// follow lowers the memory requests of a result to those that follow use.
func (p *problem) follow(out []ContainerTarget, follows []resources.Amount, proportions []Proportion) {
	const k = resources.Memory
	lowered, requests, limits := make([]resources.Amount, len(out)), resources.Amount(0), resources.Amount(0)
	for i := range out {
		f, part := &out[i], &p.parts[i]
		request, limit := has(f.Requests, part.container.Requests, k), has(f.Limits, part.container.Limits, k)
		if follows[i] > 0 {
			f.Declared = proportions[i]
			f.MemoryLimit = LimitSpan{limit.Scale(leastLimit), limit.Scale(roomAbove)}
			least := max(p.ranges.Container.Min.Value(k), part.rule.Min.Value(k), follows[i], 1)
			if ratio := p.ranges.Container.MaxRatio.Value(k); ratio > 0 {
				smallest, _ := limit.ProportionUp(inThousandths, ratio)
				least = max(least, smallest)
			}
			request = min(request, least)
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

// has returns the amount that is written, else the one that is there.
func has(written, there resources.List, k resources.Kind) resources.Amount {
	if a, ok := written.Get(k); ok {
		return a
	}
	return max(there.Value(k), 0)
}
