package recommend

import (
	"fmt"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/recommender/model"
)

// Explain explains the recommendation that the next iteration computes for a VPA. The cached object has the published
// one. It changes nothing, and may run inside Model.Read.
func (a *Advisor) Explain(v *model.VPA, cached *vpav1.VerticalPodAutoscaler) (*explanation.VPA, error) {
	answer := &explanation.VPA{Namespace: v.Object.Namespace, Name: v.Object.Name, Recipe: explanation.Recipe{Source: recipe.FromFlag}, Containers: []explanation.Container{}}
	if v.Recipe != nil {
		answer.Recipe = explanation.RecipeOf(v.Recipe)
	}
	var estimates []model.Estimate
	scratch, r, served := usage.NewProfile(a.Shape), a.recipe(v), containersServed(v, v.ReadRecommended())
	for container, series := range v.ReadRecommended() {
		if v.Rules.For(container).Off {
			continue
		}
		p, live := a.history(&scratch, v, container, series)
		t := a.sketch(v, container)
		if t != nil { // a recipe caches results in its sketch
			var err error
			if t, err = sketch.Read(r.Needs, t.Image(), time.Time{}, 0); err != nil {
				return nil, fmt.Errorf("copy the data of container %s: %w", container, err)
			}
		}
		c, result := explanation.Explain(container, r, a.input(v, container, served, p, t))
		c.Published = explanation.Published(cached, container)
		answer.Containers = append(answer.Containers, c)
		estimates = append(estimates, a.estimate(v, container, p, live, &result))
	}
	advice, _ := a.advise(v, estimates)
	answer.Held = advice.Held
	return answer, nil
}
