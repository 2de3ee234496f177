// Package recipe turns the usage history of a container into a recommendation.
//
// A Recipe has one Chain of named Steps for each resource and bound. Parse builds it from a text
// such as "loadline:cpu=tracking,margin=0.2", and a Cache keeps the recipes of VPA annotations and
// policies. Recommend evaluates the chains. Explain evaluates the same chains and returns the value
// after each step, so an explanation always matches the recommendation.
//
// Recipes read profiles of package usage and sketches of package sketch. Capping and formatting of
// the recommendation are the task of the callers.
package recipe

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
)

// Input is the data about a container from which a recommendation is computed.
type Input struct {
	Profile    *usage.Profile // nil = use the sketch only
	Sketch     *sketch.Sketch // parts of Recipe.Needs, nil = no history
	Containers int            // containers of the VPA with history and not off, at least 1, which share the floor
	Current    resources.List // requests in force, absent = unknown
}

// Points compares the recorded five-minute points with the required number.
type Points struct{ Have, Want int }

// Result is the recommendation for an Input.
type Result struct {
	Bounds resources.Bounds
	// Ready reports for each resource whether the history suffices. Without it, its bounds are
	// meaningless.
	Ready    [resources.Kinds]bool
	Coverage [resources.Kinds]time.Duration // from the first to the last usage in the sketch, 0 = none
	Points   [resources.Kinds]Points        // existing and required points, zero if the recipe needs none
}

// SaveTargets records the targets in a sketch, which may be nil, for recipes that limit changes.
func (r *Result) SaveTargets(s *sketch.Sketch) {
	for k := range resources.Kind(resources.Kinds) {
		if s != nil && r.Ready[k] {
			s.SetTarget(k, r.Bounds.Target.Value(k))
		}
	}
}

// Subject is the input of the steps of a chain.
type Subject struct {
	Profile *usage.Profile
	Sketch  *sketch.Sketch // nil if the recipe needs none
	Minimum resources.List // minimum recommendation
	Current resources.List
	Target  resources.List // results of the target chains, for the bound chains
}

// Step is one named step of a chain. It must not modify the subject. Results of a chain are
// millicores or bytes. In the recipe "vpa" all intermediate amounts are whole numbers too.
type Step struct {
	Name     string
	Apply    func(s Subject, in float64) float64
	Describe func(s Subject) string // replaces Name in explanations, nil = Name
}

func (step *Step) label(s Subject) string {
	if step.Describe != nil {
		return step.Describe(s)
	}
	return step.Name
}

// wholeAmountStep creates a step from a function of whole amounts. It drops fractions and limits
// amounts to resources.Max, so that no setting of a later step can overflow.
func wholeAmountStep(name string, apply func(s Subject, in resources.Amount) resources.Amount) Step {
	return Step{Name: name, Apply: func(s Subject, in float64) float64 { return float64(apply(s, resources.FromFloat(in))) }}
}

// Chain is the list of steps that compute one number. The first step ignores its input.
type Chain []Step

// Run evaluates the chain, and appends the value after each step to values unless it is nil.
func (c Chain) Run(s Subject, values *[]Value) resources.Amount {
	amount := 0.0
	for i := range c {
		amount = c[i].Apply(s, amount)
		if values != nil {
			*values = append(*values, Value{c[i].label(s), amount})
		}
	}
	return resources.FromFloat(amount)
}

// Recipe has one chain for each resource and bound. It is immutable.
type Recipe struct {
	Target, Lower, Upper [resources.Kinds]Chain

	Needs       sketch.Needs // sketch parts in addition to a profile
	UsesCurrent bool         // the requests in force affect the result
	// MinPoints is the number of five-minute points that a recommendation requires. If it is not 0,
	// Needs.Points is set. PointsKind is the resource whose points count, for each resource.
	MinPoints  int
	PointsKind [resources.Kinds]resources.Kind
	// SeparateMemoryLimit means that the memory limit is the upper bound, whatever the request is.
	SeparateMemoryLimit bool
	// Sharing is the rule by which the pods of a node share its headroom. The lower bound is then
	// the base of a container, and the target its peak. nil = no sharing.
	Sharing *sharing.Rule

	podMin [resources.Kinds]float64 // millicores and MiB, minimum for all containers of a pod together
	burst  [resources.Kinds]float64 // sensitivity to bursts of recipes with points
}

// Minimum returns the minimum recommendation for each of n containers that share the floor of a
// pod. The order of operations matches the reference recommender.
func (r *Recipe) Minimum(n int) resources.List {
	share := 1.0 / float64(max(n, 1))
	cpu := resources.FromFloat(r.podMin[resources.CPU] * 0.001 * 1000)
	memory := resources.FromFloat(r.podMin[resources.Memory] * 1024 * 1024)
	return resources.NewList(cpu.Scale(share), memory.Scale(share))
}

// Floor raises the amount to the minimum of the subject.
func Floor(kind resources.Kind) Step {
	return wholeAmountStep("floor", func(s Subject, in resources.Amount) resources.Amount {
		return max(in, s.Minimum.Value(kind))
	})
}

// ForKind returns the recipe without chains and needs of other resources, whose bounds are then 0.
func (r *Recipe) ForKind(k resources.Kind) *Recipe {
	only := &Recipe{Needs: r.Needs.ForKind(k), UsesCurrent: r.UsesCurrent, MinPoints: r.MinPoints, PointsKind: r.PointsKind,
		SeparateMemoryLimit: r.SeparateMemoryLimit, Sharing: r.Sharing, podMin: r.podMin, burst: r.burst}
	only.Target[k], only.Lower[k], only.Upper[k] = r.Target[k], r.Lower[k], r.Upper[k]
	return only
}

// evaluate runs all chains, and appends the value after each step to e unless it is nil.
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

func (r *Recipe) subject(in Input) Subject {
	s := Subject{Profile: in.Profile, Minimum: r.Minimum(in.Containers), Current: in.Current}
	if r.Needs.Any() {
		if s.Sketch = in.Sketch; s.Sketch == nil {
			s.Sketch = sketch.New(r.Needs)
		}
	}
	return s
}

// Recommend returns the recommendation for a container. It does not modify its input.
func (r *Recipe) Recommend(in Input) Result {
	s := r.subject(in)
	result := r.readiness(in, s)
	result.Bounds = r.evaluate(s, nil)
	return result
}

func (r *Recipe) readiness(in Input, s Subject) (result Result) {
	result.Ready = [resources.Kinds]bool{true, true}
	if in.Profile != nil {
		result.Ready = [resources.Kinds]bool{resources.CPU: !in.Profile.CPU.Empty(), resources.Memory: !in.Profile.Memory.Empty()}
	}
	for k := range resources.Kind(resources.Kinds) {
		if s.Sketch != nil {
			covered, some := s.Sketch.Coverage(k)
			if result.Ready[k] = result.Ready[k] && some; some {
				result.Coverage[k] = covered
			}
		}
		if r.MinPoints > 0 {
			result.Points[k] = Points{s.Sketch.Points[r.PointsKind[k]].Profile().Points, r.MinPoints}
			result.Ready[k] = result.Ready[k] && result.Points[k].Have >= r.MinPoints
		}
	}
	return result
}

// Insight holds the confidence and bursts of recipes with points.
type Insight struct {
	Points     int
	Confidence float64 // 0 to 1
	Burst      float64 // factor for a burst, 1 = no burst
}

// Insights returns the insight for each resource, and false if the recipe has no points.
func (r *Recipe) Insights(s *sketch.Sketch) (all [resources.Kinds]Insight, found bool) {
	if r.MinPoints == 0 || s == nil {
		return all, false
	}
	for k := range resources.Kind(resources.Kinds) {
		points := s.Points[r.PointsKind[k]]
		if points == nil {
			return all, false
		}
		h := points.Profile()
		all[k] = Insight{h.Points, h.Confidence, BurstFactor(h.Burst, r.burst[k])}
	}
	return all, true
}

// Value is the amount after a step.
type Value struct {
	Step   string
	Amount float64
}

// Explanation holds the amount after each step. The last ones, truncated, are the recommendation.
type Explanation struct {
	Target, Lower, Upper [resources.Kinds][]Value
}

// Explain returns the intermediate amounts of Recommend for the same input.
func (r *Recipe) Explain(in Input) (e Explanation) {
	r.evaluate(r.subject(in), &e)
	return e
}
