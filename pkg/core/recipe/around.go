package recipe

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// The bounds of recipes that have none of their own: a request below lower x
// target or above upper x target is changed at once.
var (
	lower = [resources.Kinds]float64{0.85, 0.95}
	upper = [resources.Kinds]float64{1.5, 1.3}
)

// around gives a recipe bounds that follow its target.
func around(r *Recipe, lower, upper [resources.Kinds]float64) {
	r.Follows = true
	for k := range resources.Kind(resources.Kinds) {
		r.Lower[k] = Chain{Factor(lower[k]), Floor(k)}
		r.Upper[k] = Chain{Factor(upper[k])}
	}
}
