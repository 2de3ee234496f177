package policy

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// Wildcard is the container name of an entry that is the fallback for all
// containers without an entry of their own.
const Wildcard = "*"

// Rule is the effective policy of one container. Start from Default: in the
// zero value nothing is controlled.
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

// OrMax returns r with the amounts of most where r itself has no maximum.
// The recommender passes its global maximum.
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

// Rules is the policy part of one VPA. The zero value leaves everything at
// its default.
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

// For returns the rule of a container: the first entry with its name wins,
// then the last Wildcard, then Default.
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

// Lookup returns For, for callers that ask for many containers: it does not search all
// entries for each of them.
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

// Cap moves b into the bounds of r: up to the minimum, then down to the
// maximum, so the maximum wins where the two contradict. Kinds that b lacks
// are not added.
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

// roles lists the parts of b with the target first, because only the cuts of
// the target have a Note.
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

// clamp raises a to least and cuts it to most; a bound of 0 or below is none.
// The side is the bound that decided.
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
