package policy

import (
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Wildcard is the container name of an entry that is the fallback for all containers without an entry of their own.
const Wildcard = "*"

// Rule is the effective policy of one container. Start from Default: in the zero value nothing is controlled.
type Rule struct {
	Off          bool                  // the container is left alone
	Controlled   [resources.Kinds]bool // kinds that are recommended
	RequestsOnly bool                  // limits are never written
	// SeparateMemoryLimit says that the memory limit does not follow the request: see separate.go.
	SeparateMemoryLimit bool
	Sharing             *Sharing       // nil: the pod shares nothing
	Min, Max            resources.List // an absent or zero amount is no bound
	Boost               Boost
}

// Default is the rule of a container that no policy mentions.
func Default() Rule { return Rule{Controlled: [resources.Kinds]bool{true, true}} }

// OrMax returns r with the amounts of most where r itself has no maximum. The recommender passes its global maximum.
func (r Rule) OrMax(most resources.List) Rule {
	r.Max = most.Override(r.Max)
	return r
}

// Entry is one item of a VPA's list of container policies.
type Entry struct {
	Container string // a container name or Wildcard
	Rule      Rule
	OwnBoost  bool // Rule.Boost replaces the boost of the whole pod
}

// Rules is the policy part of one VPA. The zero value leaves everything at its default.
type Rules struct {
	Entries []Entry
	Boost   Boost // for containers whose entry has none of its own
	// SeparateMemoryLimit and Sharing hold for all containers.
	SeparateMemoryLimit bool
	Sharing             *Sharing
	KeepsClass          bool // running pods are resized in place, which cannot change their QoS class
	// Outer are rules whose maximum bounds minimum and maximum of each container as well, such as
	// those of a SizingPolicy. Nil: none.
	Outer *Rules
}

// For returns the rule of a container: the first entry with its name wins, then the last Wildcard, then Default.
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

// fewEntries is how many entries are searched faster one by one.
const fewEntries = 8

// Lookup returns For, for callers that ask for many containers: it does not search all entries for each of them.
func (r Rules) Lookup() func(container string) Rule {
	if len(r.Entries) <= fewEntries {
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

// effective is the rule of an entry for a container, with the boost and the bounds that hold there.
func (r Rules) effective(e Entry, container string) Rule {
	if r.Outer != nil {
		e.Rule = e.Rule.within(r.Outer.For(container).Max)
	}
	if !e.OwnBoost {
		e.Rule.Boost = r.Boost
	}
	e.Rule.SeparateMemoryLimit, e.Rule.Sharing = r.SeparateMemoryLimit, r.Sharing
	return e.Rule
}

// within returns r with bounds that do not exceed a maximum.
func (r Rule) within(most resources.List) Rule {
	for k := range resources.Kind(resources.Kinds) {
		bound := most.Value(k)
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

// Cap moves b into the bounds of r: up to the minimum, then down to the maximum, so the maximum wins where the two
// contradict. Kinds that b lacks are not added.
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

// roles lists the parts of b with the target first, because only the cuts of the target have a Note.
func roles(b *resources.Bounds) [3]*resources.List {
	return [3]*resources.List{&b.Target, &b.Lower, &b.Upper}
}

// side is which bound moved an amount.
type side int8

const (
	inside side = iota
	raised
	cut
)

// clamp raises a to least and cuts it to most; a bound of 0 or below is none. The side is the bound that decided.
func clamp(a, least, most resources.Amount) (resources.Amount, side) {
	moved := inside
	if least > 0 && a < least {
		a, moved = least, raised
	}
	if most > 0 && a > most {
		a, moved = most, cut
	}
	return a, moved
}

// joined returns p and its result with the containers that have no recommendation for kind k moved so that the pod fits
// its range. Where that does not help, the API server refuses the pod anyway, and both are returned as they were.
// Containers that the user wants to be left alone join only if off is true.
func (p *problem) joined(k resources.Kind, off bool, result Result) (*problem, Result) {
	trial, joins := p.clone(), make([]bool, len(p.parts))
	for i := range trial.parts {
		joins[i] = trial.parts[i].join(k, off)
	}
	if !slices.Contains(joins, true) {
		return p, result
	}
	// What they get with the others is theirs from then on, and the others are fitted
	// around it: so does who looks at a pod that has the result.
	together, fixed := trial.stable(), p.clone()
	for i, joined := range joins {
		if joined {
			fixed.parts[i].move(k, together.Containers[i])
		}
	}
	fitted := fixed.stable()
	if fitted.has(Note{k, OutsidePodRange}) || fitted.has(Note{k, OutsideRange}) {
		return p, result
	}
	return fixed, fitted
}

// join makes the request of a container without recommendation for kind k its
// recommendation, and reports whether it has one. The bounds of its rule hold for it.
func (p *part) join(k resources.Kind, off bool) bool {
	request := p.container.Requests.Value(k)
	if request <= 0 || p.given.Target.Has(k) || !off && (p.rule.Off || !p.rule.Controlled[k]) {
		return false
	}
	p.given.Target = p.given.Target.With(k, request)
	return true
}

// move gives the container what f has of kind k.
func (p *part) move(k resources.Kind, f ContainerTarget) {
	if request, ok := f.Requests.Get(k); ok {
		p.moved.Requests, p.container.Requests = p.moved.Requests.With(k, request), p.container.Requests.With(k, request)
	}
	if limit, ok := f.Limits.Get(k); ok {
		p.moved.Limits, p.container.Limits = p.moved.Limits.With(k, limit), p.container.Limits.With(k, limit)
	}
}

// give writes what the container gets without recommendation.
func (p *part) give(f *ContainerTarget) {
	f.Requests, f.Limits = f.Requests.Override(p.moved.Requests), f.Limits.Override(p.moved.Limits)
	for k := range resources.Kind(resources.Kinds) {
		if p.moved.Requests.Has(k) {
			f.Notes = append(f.Notes, Note{k, MovedWithOthers})
		}
	}
}

// Range is what LimitRange items of one type demand. An absent or zero amount is no demand.
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

// Ranges are the combined LimitRanges of one namespace. The zero value demands nothing.
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

// requestBounds translates the container range into bounds on the request of c. A limit grows with its request, so a
// bound on the limit is also a bound on the request; the request itself must not be below the minimum either. A
// container without limit has no maximum. Where the limit is kept the bounds hold for the request alone, which must
// also not become too small for its limit.
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
