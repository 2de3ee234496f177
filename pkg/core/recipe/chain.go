package recipe

import (
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
)

// Subject is what an estimate is made of.
type Subject struct {
	Profile *usage.Profile
	Sketch  *sketch.Sketch // what Recipe.Needs asks for; nil if that is nothing
	Minimum resources.List // least recommendation, depends on how many containers share a pod
	Current resources.List // requests that are in force; absent = not known
}

// Step is one named step of an estimate. It must not change the subject. Amounts
// are millicores or bytes at the end of a chain; those of the recipe "vpa" have
// no fractions in between either.
type Step struct {
	Name  string
	Apply func(s Subject, in float64) float64
	Says  func(s Subject) string // what stands for the name in explanations; nil = the name
}

// name returns what the step is called where it estimates s.
func (step *Step) name(s Subject) string {
	if step.Says != nil {
		return step.Says(s)
	}
	return step.Name
}

// whole makes a step of a function of amounts, which drops fractions.
func whole(name string, apply func(s Subject, in resources.Amount) resources.Amount) Step {
	return Step{Name: name, Apply: func(s Subject, in float64) float64 { return float64(apply(s, resources.FromFloat(in))) }}
}

// Chain is the list of steps to one number. The first step ignores its input.
type Chain []Step

// Run evaluates the chain. It shows the value after each step to keep, if that is
// not nil.
func (c Chain) Run(s Subject, keep func(Value)) resources.Amount {
	a := 0.0
	for i := range c {
		a = c[i].Apply(s, a)
		if keep != nil {
			keep(Value{c[i].name(s), a})
		}
	}
	return resources.FromFloat(a)
}

// Recipe is one chain for each kind and bound. It never changes once made.
type Recipe struct {
	Target, Lower, Upper [resources.Kinds]Chain

	Needs       sketch.Needs // what it wants to know of the past besides a profile
	UsesCurrent bool         // the requests that are in force matter
	// LeastPoints is how many points of five minutes a recommendation takes; 0 = none,
	// else Needs.Points is set. PointsOf is the kind whose points count, for each.
	LeastPoints int
	PointsOf    [resources.Kinds]resources.Kind
	// Follows makes a chain for a bound from the target: the chains of Lower and
	// Upper begin with the target instead of running on their own.
	Follows bool

	floors Config // its least recommendations; MinimumOf returns them
}

// MinimumOf returns the least recommendation for each of n containers that share a
// pod.
func (r *Recipe) MinimumOf(n int) resources.List { return r.floors.Minimum(n) }

// Only returns the recipe without the chains of other kinds than k: theirs are 0.
func (r *Recipe) Only(k resources.Kind) *Recipe {
	only := &Recipe{Needs: r.Needs, UsesCurrent: r.UsesCurrent, LeastPoints: r.LeastPoints, PointsOf: r.PointsOf, Follows: r.Follows}
	only.Target[k], only.Lower[k], only.Upper[k] = r.Target[k], r.Lower[k], r.Upper[k]
	return only
}

// bound evaluates the chain of a bound.
func (r *Recipe) bound(c Chain, s Subject, target resources.Amount, keep func(Value)) resources.Amount {
	if !r.Follows {
		return c.Run(s, keep)
	}
	from := Chain{{Name: "target", Apply: func(Subject, float64) float64 { return float64(target) }}}
	return append(from, c...).Run(s, keep)
}

// Bounds returns the recommendation for a container with the past p. No kind
// gets less than in minimum.
func (r *Recipe) Bounds(p *usage.Profile, minimum resources.List) resources.Bounds {
	return r.For(Subject{Profile: p, Minimum: minimum})
}

// For returns the recommendation for a subject.
func (r *Recipe) For(s Subject) resources.Bounds {
	var b resources.Bounds
	for k := range resources.Kind(resources.Kinds) {
		target := r.Target[k].Run(s, nil)
		b.Target = b.Target.With(k, target)
		b.Lower = b.Lower.With(k, r.bound(r.Lower[k], s, target, nil))
		b.Upper = b.Upper.With(k, r.bound(r.Upper[k], s, target, nil))
	}
	return b
}

// Points returns how many points there are for a kind, and how many a recommendation
// takes. With fewer For gives numbers all the same, but they mean nothing.
func (r *Recipe) Points(s Subject, k resources.Kind) (have, want int) {
	if r.LeastPoints == 0 {
		return 0, 0
	}
	return s.Sketch.Points[r.PointsOf[k]].Habits().Points, r.LeastPoints
}

// Recommend is For where somebody publishes the targets of some kinds: recipes that must
// know of it are told. It takes away the kinds of which there are too few points.
func (r *Recipe) Recommend(s Subject, known *[resources.Kinds]bool) resources.Bounds {
	b := r.For(s)
	for k := range resources.Kind(resources.Kinds) {
		have, want := r.Points(s, k)
		if known[k] = known[k] && have >= want; known[k] && s.Sketch != nil {
			s.Sketch.Recommended(k, b.Target.Value(k))
		}
	}
	return b
}

// Value is what a step led to.
type Value struct {
	Step   string
	Amount float64
}

// Explanation holds the values after every step; the last of each list is the
// recommendation, without its fraction.
type Explanation struct {
	Target, Lower, Upper [resources.Kinds][]Value
}

// Explain returns how For comes to its numbers for the same subject.
func (r *Recipe) Explain(s Subject) Explanation {
	var e Explanation
	for k := range resources.Kinds {
		target := r.Target[k].Run(s, func(v Value) { e.Target[k] = append(e.Target[k], v) })
		r.bound(r.Lower[k], s, target, func(v Value) { e.Lower[k] = append(e.Lower[k], v) })
		r.bound(r.Upper[k], s, target, func(v Value) { e.Upper[k] = append(e.Upper[k], v) })
	}
	return e
}
