package cookbook

import (
	"loadline.dev/loadline/pkg/core/estimate"
	"loadline.dev/loadline/pkg/core/ingredient"
	"loadline.dev/loadline/pkg/core/resources"
)

// The bounds of recipes that have none of their own: a request below lower x
// target or above upper x target is changed at once.
var (
	lower = [resources.Kinds]float64{0.85, 0.95}
	upper = [resources.Kinds]float64{1.5, 1.3}
)

// around gives a recipe bounds that follow its target.
func around(r *estimate.Recipe, lower, upper [resources.Kinds]float64) {
	r.Follows = true
	for k := range resources.Kind(resources.Kinds) {
		r.Lower[k] = estimate.Chain{ingredient.Factor(lower[k]), estimate.Floor(k)}
		r.Upper[k] = estimate.Chain{ingredient.Factor(upper[k])}
	}
}
