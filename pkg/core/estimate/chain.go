package estimate

import (
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/profile"
)

// Subject is what an estimate is made of.
type Subject struct {
	Profile *profile.Profile
	Minimum amount.Resources // least recommendation, depends on how many containers share a pod
}

// Step is one named step of an estimate: millicores in and out, or bytes. It
// must not change the subject.
type Step struct {
	Name  string
	Apply func(s Subject, in amount.Amount) amount.Amount
}

// Chain is the list of steps to one number. The first step ignores its input.
type Chain []Step

// run evaluates the chain and shows the value after each step to keep, if that
// is not nil.
func (c Chain) run(s Subject, keep func(Value)) amount.Amount {
	var a amount.Amount
	for _, step := range c {
		a = step.Apply(s, a)
		if keep != nil {
			keep(Value{step.Name, a})
		}
	}
	return a
}

// Recipe is one chain for each kind and bound. It never changes once made.
type Recipe struct {
	Target, Lower, Upper [amount.Kinds]Chain
}

// Bounds returns the recommendation for a container with the past p. No kind
// gets less than in minimum.
func (r *Recipe) Bounds(p *profile.Profile, minimum amount.Resources) amount.Bounds {
	var b amount.Bounds
	s := Subject{p, minimum}
	for k := range amount.Kind(amount.Kinds) {
		b.Lower = b.Lower.With(k, r.Lower[k].run(s, nil))
		b.Target = b.Target.With(k, r.Target[k].run(s, nil))
		b.Upper = b.Upper.With(k, r.Upper[k].run(s, nil))
	}
	return b
}

// Value is an amount and the step that led to it.
type Value struct {
	Step   string
	Amount amount.Amount
}

// Explanation holds the values after every step; the last of each list is the
// recommendation.
type Explanation struct {
	Target, Lower, Upper [amount.Kinds][]Value
}

// Explain returns how Bounds comes to its numbers for the same arguments.
func (r *Recipe) Explain(p *profile.Profile, minimum amount.Resources) Explanation {
	var e Explanation
	s := Subject{p, minimum}
	for k := range amount.Kinds {
		r.Lower[k].run(s, func(v Value) { e.Lower[k] = append(e.Lower[k], v) })
		r.Target[k].run(s, func(v Value) { e.Target[k] = append(e.Target[k], v) })
		r.Upper[k].run(s, func(v Value) { e.Upper[k] = append(e.Upper[k], v) })
	}
	return e
}
