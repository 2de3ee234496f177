package recipe

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// VPA is the recipe of the reference recommender. Bounds come closer to the
// target as more is known: with a day of samples, one a minute, the upper one
// is doubled and the lower one hardly lowered.
func VPA(c Config) Recipe {
	r := Recipe{floors: c}
	for k := range resources.Kind(resources.Kinds) {
		r.Target[k] = Chain{Quantile(k, c.Target[k]), Margin(c.Margin), Floor(k)}
		r.Lower[k] = Chain{Quantile(k, c.Lower[k]), Margin(c.Margin), Confidence(0.001, -2, c.Confidence[k]), Floor(k)}
		r.Upper[k] = Chain{Quantile(k, c.Upper[k]), Margin(c.Margin), Confidence(1, 1, c.Confidence[k]), Floor(k)}
	}
	return r
}
