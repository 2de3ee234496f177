// Package recipe turns the history of a container into a recommendation.
//
// A Recipe has one Chain of named Steps for each kind and bound. Parse makes it of a text such as
// "loadline:cpu=tracking,margin=0.2"; a Book remembers those that VPAs ask for by annotation. Recommend evaluates its
// chains; Explain does the same and keeps the value after each step, so that what is shown is what was computed.
//
// Each recipe is one file with its settings and its chains: vpa.go (the default), loadline.go, crane.go, attune.go and
// autopilot.go. Steps are in the file of their recipe or in steps.go. Recipes whose pods share the headroom of their
// node are in shared.go, cruisekube among them. What a recipe knows of a container comes from a profile of package
// usage and from package sketch; it does not know how a number is written or capped.
package recipe

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
)

// Input is what is known of a container when something is recommended for it.
type Input struct {
	Profile    *usage.Profile // nil: only the sketch counts
	Sketch     *sketch.Sketch // what Recipe.Needs asks for; nil: nothing of that is known
	Containers int            // of the VPA that have a history and are not off, 1 or more: they share the floor
	Current    resources.List // requests that are in force; absent = not known
}

// Points are points of five minutes.
type Points struct{ Have, Want int }

// Result is what a recipe makes of an Input.
type Result struct {
	Bounds resources.Bounds
	// Known says of which kinds enough is known to recommend anything. The bounds of the others
	// are numbers that mean nothing.
	Known   [resources.Kinds]bool
	Covered [resources.Kinds]time.Duration // from the first to the last use that the sketch has; 0 where there is none
	Points  [resources.Kinds]Points        // that there are, and that a recommendation takes; zero where it takes none
}

// Remember notes in a sketch what was recommended: some recipes must know since when. The sketch may be nil.
func (r *Result) Remember(s *sketch.Sketch) {
	for k := range resources.Kind(resources.Kinds) {
		if s != nil && r.Known[k] {
			s.Recommended(k, r.Bounds.Target.Value(k))
		}
	}
}

// Subject is what the steps of a chain look at.
type Subject struct {
	Profile *usage.Profile
	Sketch  *sketch.Sketch // nil if the recipe needs none
	Minimum resources.List // least recommendation
	Current resources.List
	Target  resources.List // what the chains of the target came to; those of the bounds run after them
}

// Step is one named step of an estimate. It must not change the subject. Amounts are millicores or bytes at the end of
// a chain; those of the recipe "vpa" have no fractions in between either.
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

// whole makes a step of a function of amounts. It drops fractions, and what is above
// resources.Max becomes that: no setting of a later step can overflow.
func whole(name string, apply func(s Subject, in resources.Amount) resources.Amount) Step {
	return Step{Name: name, Apply: func(s Subject, in float64) float64 { return float64(apply(s, resources.FromFloat(in))) }}
}

// Chain is the list of steps to one number. The first step ignores its input.
type Chain []Step

// Run evaluates the chain. It adds the value after each step to values, if that is not nil.
func (c Chain) Run(s Subject, values *[]Value) resources.Amount {
	amount := 0.0
	for i := range c {
		amount = c[i].Apply(s, amount)
		if values != nil {
			*values = append(*values, Value{c[i].name(s), amount})
		}
	}
	return resources.FromFloat(amount)
}

// Recipe is one chain for each kind and bound. It never changes once made.
type Recipe struct {
	Target, Lower, Upper [resources.Kinds]Chain

	Needs       sketch.Needs // what it wants to know besides a profile
	UsesCurrent bool         // the requests that are in force matter
	// LeastPoints is how many points of five minutes a recommendation takes; 0 = none,
	// else Needs.Points is set. PointsOf is the kind whose points count, for each.
	LeastPoints int
	PointsOf    [resources.Kinds]resources.Kind
	// SeparateMemoryLimit says that memory limits do not follow the requests: the target is
	// what is requested, and the upper bound what the limit protects.
	SeparateMemoryLimit bool
	// Sharing is how the pods of a node share what it has left, by a recipe that is made for that: the lower bound is
	// what a container uses nearly always (its base), and the target its peak. nil = by this recipe they do not share.
	Sharing *sharing.Rule

	podMin [resources.Kinds]float64 // millicores and MiB that the containers of a pod get at least, together
	burst  [resources.Kinds]float64 // sensitivity to bursts of recipes with points
}

// Minimum returns the least recommendation for each of n containers that share the floor of a
// pod. The order of operations is that of the reference recommender.
func (r *Recipe) Minimum(n int) resources.List {
	share := 1.0 / float64(max(n, 1))
	cpu := resources.FromFloat(r.podMin[resources.CPU] * 0.001 * 1000)
	memory := resources.FromFloat(r.podMin[resources.Memory] * 1024 * 1024)
	return resources.Of(cpu.Scale(share), memory.Scale(share))
}

// Floor raises to the subject's minimum of the kind, if it has one.
func Floor(kind resources.Kind) Step {
	return whole("floor", func(s Subject, in resources.Amount) resources.Amount {
		return max(in, s.Minimum.Value(kind))
	})
}

// Only returns the recipe without the chains of other kinds than k, and what only they need: their bounds are 0.
func (r *Recipe) Only(k resources.Kind) *Recipe {
	only := &Recipe{Needs: r.Needs.Only(k), UsesCurrent: r.UsesCurrent, LeastPoints: r.LeastPoints, PointsOf: r.PointsOf,
		SeparateMemoryLimit: r.SeparateMemoryLimit, Sharing: r.Sharing, podMin: r.podMin, burst: r.burst}
	only.Target[k], only.Lower[k], only.Upper[k] = r.Target[k], r.Lower[k], r.Upper[k]
	return only
}

// evaluate runs all chains. It adds the value after each step to e, if that is not nil.
func (r *Recipe) evaluate(s Subject, e *Explanation) (b resources.Bounds) {
	var targets, lowers, uppers *[]Value
	for k := range resources.Kind(resources.Kinds) {
		if e != nil {
			targets, lowers, uppers = &e.Target[k], &e.Lower[k], &e.Upper[k]
		}
		s.Target = s.Target.With(k, r.Target[k].Run(s, targets))
		b.Lower = b.Lower.With(k, r.Lower[k].Run(s, lowers))
		b.Upper = b.Upper.With(k, r.Upper[k].Run(s, uppers))
	}
	b.Target = s.Target
	return b
}

// subject is what the chains are evaluated for.
func (r *Recipe) subject(in Input) Subject {
	s := Subject{Profile: in.Profile, Minimum: r.Minimum(in.Containers), Current: in.Current}
	if r.Needs.Any() {
		if s.Sketch = in.Sketch; s.Sketch == nil {
			s.Sketch = sketch.New(r.Needs)
		}
	}
	return s
}

// Recommend returns what is recommended for a container. It changes nothing of what it is given; Result.Remember does.
func (r *Recipe) Recommend(in Input) Result {
	s := r.subject(in)
	result := r.known(in, s)
	result.Bounds = r.evaluate(s, nil)
	return result
}

// known returns a result without bounds: how much there is to make them of.
func (r *Recipe) known(in Input, s Subject) (result Result) {
	result.Known = [resources.Kinds]bool{true, true}
	if in.Profile != nil {
		result.Known = [resources.Kinds]bool{resources.CPU: !in.Profile.CPU.Empty(), resources.Memory: !in.Profile.Memory.Empty()}
	}
	for k := range resources.Kind(resources.Kinds) {
		if s.Sketch != nil {
			covered, some := s.Sketch.Covers(k)
			if result.Known[k] = result.Known[k] && some; some {
				result.Covered[k] = covered
			}
		}
		if r.LeastPoints > 0 {
			result.Points[k] = Points{s.Sketch.Points[r.PointsOf[k]].Habits().Points, r.LeastPoints}
			result.Known[k] = result.Known[k] && result.Points[k].Have >= r.LeastPoints
		}
	}
	return result
}

// Insight holds what a recipe of points knows besides amounts.
type Insight struct {
	Points     int
	Confidence float64 // 0 to 1
	Burst      float64 // factor for a burst, 1 for none
}

// Insights returns the insight into each kind, and false where the recipe has no points.
func (r *Recipe) Insights(s *sketch.Sketch) (all [resources.Kinds]Insight, found bool) {
	if r.LeastPoints == 0 || s == nil {
		return all, false
	}
	for k := range resources.Kind(resources.Kinds) {
		points := s.Points[r.PointsOf[k]]
		if points == nil {
			return all, false
		}
		h := points.Habits()
		all[k] = Insight{h.Points, h.Confidence, BurstFactor(h.Burst, r.burst[k])}
	}
	return all, true
}

// Value is what a step led to.
type Value struct {
	Step   string
	Amount float64
}

// Explanation holds the values after every step; the last of each list is the recommendation, without its fraction.
type Explanation struct {
	Target, Lower, Upper [resources.Kinds][]Value
}

// Explain returns how Recommend comes to its numbers for the same input.
func (r *Recipe) Explain(in Input) (e Explanation) {
	r.evaluate(r.subject(in), &e)
	return e
}
