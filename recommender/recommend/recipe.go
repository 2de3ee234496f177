package recommend

import (
	"time"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

// recipe returns the recipe of a VPA.
func (a *Advisor) recipe(v *model.VPA) *recipe.Recipe {
	if c := v.Recipe; c != nil {
		return c.Recipe
	}
	return &a.Recipe
}

// estimate returns what the recipe of a VPA makes of one of its containers, of which p is
// the history, and whether it knows less of the past than there was: young.
func (a *Advisor) estimate(v *model.VPA, container string, containers int, p *usage.Profile) (result recipe.Result, young [resources.Kinds]bool) {
	r := a.recipe(v)
	in := recipe.Input{Profile: p, Sketch: v.Sketches[container], Containers: containers}
	if !r.Needs.Any() {
		in.Sketch = nil // of another recipe
	}
	recall(v, container, in.Sketch)
	if r.UsesCurrent && a.Current != nil {
		in.Current = a.Current(v, container)
	}
	result = r.Recommend(in)
	result.Remember(in.Sketch)
	if r.Needs.Any() {
		for k, covered := range result.Covered {
			young[k] = p.Last().Sub(p.First()) > covered+patience && covered < a.enough(v, container, resources.Kind(k))
		}
	}
	return result, young
}

// covered is how much of the past a recommendation rests on at least: the history p, and
// where the recipe needs a sketch what that has of each kind.
func covered(r *recipe.Recipe, result *recipe.Result, p *usage.Profile) time.Duration {
	least := time.Duration(p.Confidence(time.Hour) * float64(time.Hour))
	if r.Needs.Any() {
		for k, empty := range [resources.Kinds]bool{p.CPU.Empty(), p.Memory.Empty()} {
			if !empty {
				least = min(least, result.Covered[k])
			}
		}
	}
	return least
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
func (a *Advisor) enough(v *model.VPA, container string, k resources.Kind) time.Duration {
	if k == resources.Memory {
		return v.RulesOf(container).Interval
	}
	return a.Store.Rules().Interval
}

func either(a, b [resources.Kinds]bool) [resources.Kinds]bool {
	for k := range a {
		a[k] = a[k] || b[k]
	}
	return a
}
