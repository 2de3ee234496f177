package recommend

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// recipeInUse is the recipe of a VPA at work.
type recipeInUse struct {
	*recipe.Recipe
	advisor *Advisor
	minimum resources.List
}

// recipe returns the recipe of a VPA for one of some containers.
func (a *Advisor) recipe(v *model.VPA, containers int) recipeInUse {
	if c := v.Recipe; c != nil {
		return recipeInUse{c.Recipe, a, c.MinimumOf(containers)}
	}
	return recipeInUse{&a.Recipe, a, a.Estimate.Minimum(containers)}
}

// estimated is what a recipe makes of a container.
type estimated struct {
	bounds resources.Bounds
	known  [resources.Kinds]bool // there is enough to say anything
	young  [resources.Kinds]bool // the recipe knows less of the past than there was
	seen   time.Duration         // that what the recipe needs covers, of both kinds
	points [resources.Kinds]status.Points
}

func (s recipeInUse) estimate(v *model.VPA, container string, p *usage.Profile) estimated {
	e := estimated{known: [resources.Kinds]bool{resources.CPU: !p.CPU.Empty(), resources.Memory: !p.Memory.Empty()}, seen: math.MaxInt64}
	subject := recipe.Subject{Profile: p, Minimum: s.minimum}
	if s.Needs.Any() {
		t := v.Sketches[container]
		if t == nil { // what is published stays, and takes the place of what nothing leads to
			t = sketch.New(s.Needs)
		}
		subject.Sketch = t
		for k := range resources.Kind(resources.Kinds) {
			covered, some := t.Covers(k)
			if !some {
				covered = 0
			}
			if e.known[k] {
				e.seen = min(e.seen, covered)
			}
			e.known[k] = e.known[k] && some
			e.young[k] = p.Last().Sub(p.First()) > covered+patience && covered < s.enough(v, container, k)
		}
	}
	if s.UsesCurrent && s.advisor.Current != nil {
		subject.Current = s.advisor.Current(v, container)
	}
	for k := range resources.Kind(resources.Kinds) {
		e.points[k] = status.PointsOf(s.Points(subject, k))
	}
	recall(v, container, subject.Sketch)
	e.bounds = s.Recommend(subject, &e.known)
	return e
}

// recall makes a sketch that knows of no target take the published one for the last, as
// if that had changed now: when it did nobody knows, if the sketch was lost or is new.
func recall(v *model.VPA, container string, t *sketch.Sketch) {
	if t == nil {
		return
	}
	last, found := published(v, container)
	if !found {
		return
	}
	targets := convert.Resources(last.Target)
	for k := range resources.Kind(resources.Kinds) {
		if target, has := targets.Get(k); has {
			if _, _, known := t.Target(k); !known {
				t.Recommended(k, target)
			}
		}
	}
}

// patience is how much later than a history a sketch may begin without being younger.
const patience = 10 * time.Minute

// enough is how long a recipe must have seen a container to be trusted with less
// than is published.
func (s recipeInUse) enough(v *model.VPA, container string, k resources.Kind) time.Duration {
	if k == resources.Memory {
		return v.RulesOf(container).Interval
	}
	return s.advisor.Store.Rules().Interval
}

func either(a, b [resources.Kinds]bool) [resources.Kinds]bool {
	for k := range a {
		a[k] = a[k] || b[k]
	}
	return a
}
