package policy

import (
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Wildcard is the container name of the fallback entry for containers without their own entry.
const Wildcard = "*"

// Rule is the effective policy of one container. Start from Default: zero controls nothing.
type Rule struct {
	Off          bool                  // the container stays unchanged
	Controlled   [resources.Kinds]bool // kinds with a recommendation
	RequestsOnly bool                  // limits are never written
	// SeparateMemoryLimit makes the memory limit independent of the request.
	SeparateMemoryLimit bool
	Sharing             *Sharing       // nil if the pod shares nothing
	Min, Max            resources.List // an absent or zero amount is no bound
	Boost               Boost
}

// Default returns the rule of a container without a policy.
func Default() Rule { return Rule{Controlled: [resources.Kinds]bool{true, true}} }

// WithDefaultMax returns r with the given maximum, such as the recommender's, where r has none.
func (r Rule) WithDefaultMax(maximum resources.List) Rule {
	r.Max = maximum.Override(r.Max)
	return r
}

// Entry is one item of the container policies of a VPA.
type Entry struct {
	Container string // container name or Wildcard
	Rule      Rule
	OwnBoost  bool // Rule.Boost replaces the boost of the pod
}

// Rules is the resource policy of one VPA. The zero value applies the defaults.
type Rules struct {
	Entries []Entry
	Boost   Boost // for containers without an own boost
	// SeparateMemoryLimit and Sharing apply to all containers.
	SeparateMemoryLimit bool
	Sharing             *Sharing
	KeepsClass          bool // running pods are resized in place and keep their QoS class
	// Outer are rules with maxima that also bound each container (SizingPolicy); nil: none.
	Outer *Rules
}

// For returns the rule of a container: the first of its name, else the last Wildcard, else Default.
func (r Rules) For(container string) Rule {
	found := Entry{Rule: Default()}
	for _, e := range r.Entries {
		if e.Container == container {
			found = e
			break
		}
		if e.Container == Wildcard {
			found = e
		}
	}
	return r.effective(found, container)
}

// linearSearchMax is the number of entries up to which a linear search is faster than a map.
const linearSearchMax = 8

// Lookup returns a faster version of For for many containers.
func (r Rules) Lookup() func(container string) Rule {
	if len(r.Entries) <= linearSearchMax {
		return r.For
	}
	named, wildcard := make(map[string]*Entry, len(r.Entries)), &Entry{Rule: Default()}
	for i := range r.Entries {
		e := &r.Entries[i]
		if e.Container == Wildcard {
			wildcard = e
		} else if named[e.Container] == nil {
			named[e.Container] = e
		}
	}
	return func(container string) Rule {
		e := named[container]
		if e == nil {
			e = wildcard
		}
		return r.effective(*e, container)
	}
}

func (r Rules) effective(e Entry, container string) Rule {
	if r.Outer != nil {
		e.Rule = e.Rule.cappedAt(r.Outer.For(container).Max)
	}
	if !e.OwnBoost {
		e.Rule.Boost = r.Boost
	}
	e.Rule.SeparateMemoryLimit, e.Rule.Sharing = r.SeparateMemoryLimit, r.Sharing
	return e.Rule
}

func (r Rule) cappedAt(maxima resources.List) Rule {
	for k := range resources.Kind(resources.Kinds) {
		bound := maxima.Value(k)
		if bound == 0 {
			continue
		}
		if own := r.Max.Value(k); own == 0 || own > bound {
			r.Max = r.Max.With(k, bound)
		}
		if r.Min.Value(k) > bound {
			r.Min = r.Min.With(k, bound)
		}
	}
	return r
}

// Cap clamps b to the bounds of r: up to the minimum, then down to the maximum, so the maximum wins
// if they contradict. Kinds that b lacks are not added.
func Cap(b resources.Bounds, r Rule) resources.Bounds {
	for _, role := range roles(&b) {
		for k := range resources.Kind(resources.Kinds) {
			if a, ok := role.Get(k); ok {
				a, _ = clamp(a, r.Min.Value(k), r.Max.Value(k))
				*role = role.With(k, a)
			}
		}
	}
	return b
}

// roles lists the parts of b with the target first, because only cuts of the target have a Note.
func roles(b *resources.Bounds) [3]*resources.List {
	return [3]*resources.List{&b.Target, &b.Lower, &b.Upper}
}

// side is the bound that moved an amount.
type side int8

const (
	inside side = iota
	raised
	cut
)

// clamp raises a to lower and cuts it to upper. A bound of 0 or below is no bound.
func clamp(a, lower, upper resources.Amount) (resources.Amount, side) {
	moved := inside
	if lower > 0 && a < lower {
		a, moved = lower, raised
	}
	if upper > 0 && a > upper {
		a, moved = upper, cut
	}
	return a, moved
}

// moveUnrecommended also moves containers without a recommendation for kind k, Off ones only with off, so
// that the pod fits its range. If that does not help, it returns p and result unchanged.
func (p *problem) moveUnrecommended(k resources.Kind, off bool, result Result) (*problem, Result) {
	trial, joins := p.clone(), make([]bool, len(p.parts))
	for i := range trial.parts {
		joins[i] = trial.parts[i].join(k, off)
	}
	if !slices.Contains(joins, true) {
		return p, result
	}
	// Joined containers keep the amounts of this solution. The others are fitted around them, as in
	// an evaluation of a pod that has the result.
	together, fixed := trial.solveStable(), p.clone()
	for i, joined := range joins {
		if joined {
			fixed.parts[i].setMoved(k, together.Containers[i])
		}
	}
	fitted := fixed.solveStable()
	if fitted.has(Note{k, OutsidePodRange}) || fitted.has(Note{k, OutsideRange}) {
		return p, result
	}
	return fixed, fitted
}

// join recommends the current request of a container without a recommendation, if it has one.
func (p *part) join(k resources.Kind, off bool) bool {
	request := p.container.Requests.Value(k)
	if request <= 0 || p.recommendation.Target.Has(k) || !off && (p.rule.Off || !p.rule.Controlled[k]) {
		return false
	}
	p.recommendation.Target = p.recommendation.Target.With(k, request)
	return true
}

func (p *part) setMoved(k resources.Kind, f ContainerTarget) {
	if request, ok := f.Requests.Get(k); ok {
		p.movedResources.Requests, p.container.Requests = p.movedResources.Requests.With(k, request), p.container.Requests.With(k, request)
	}
	if limit, ok := f.Limits.Get(k); ok {
		p.movedResources.Limits, p.container.Limits = p.movedResources.Limits.With(k, limit), p.container.Limits.With(k, limit)
	}
}

func (p *part) writeMoved(f *ContainerTarget) {
	f.Requests, f.Limits = f.Requests.Override(p.movedResources.Requests), f.Limits.Override(p.movedResources.Limits)
	for k := range resources.Kind(resources.Kinds) {
		if p.movedResources.Requests.Has(k) {
			f.Notes = append(f.Notes, Note{k, MovedWithOthers})
		}
	}
}

// Range combines the LimitRange items of one type. An absent or zero amount is no constraint.
type Range struct {
	Min, Max resources.List
	Default  resources.List // default limit of containers
	MaxRatio resources.List // of a limit to its request, in thousandths
}

// Combine returns the highest minimum and the lowest maximum, ratio and default of two ranges.
func (r Range) Combine(other Range) Range {
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

// Ranges are the combined LimitRanges of one namespace. The zero value has no constraints.
type Ranges struct {
	Container Range
	Pod       Range // Default is not used
}

// limitBasis returns the limit of the container, else the default of the namespace, else 0.
func (r Ranges) limitBasis(c Container, k resources.Kind) resources.Amount {
	if own := c.Limits.Value(k); own > 0 {
		return own
	}
	return max(r.Container.Default.Value(k), 0)
}

// requestBounds translates the container range into bounds on the request of c, because a limit
// grows with its request. Without a limit there is no maximum. For a fixed limit, the bounds apply
// to the request alone, which must also respect the ratio to the limit.
func (r Ranges) requestBounds(c Container, k resources.Kind, keepsLimit bool) (minRequest, maxRequest resources.Amount) {
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
	return max(translated, 1) // 0 would mean no bound
}
