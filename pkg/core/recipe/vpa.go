package recipe

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// vpa is the recipe of the reference recommender, with the settings of its flags.
type vpa struct {
	none
	lifted
	config     Config
	confidence [resources.Kinds]float64 // hours
}

func newVPA(c Config) *vpa {
	v := &vpa{config: c}
	for k, interval := range v.config.Confidence {
		v.confidence[k] = interval.Hours()
	}
	return v
}

func (v *vpa) settings() []setting {
	list := []setting{{"margin", &v.config.Margin, 0, 100}}
	for k := range resources.Kind(resources.Kinds) {
		list = append(list,
			setting{"target-" + k.String(), &v.config.Target[k], 0, 1},
			setting{"lower-" + k.String(), &v.config.Lower[k], 0, 1},
			setting{"upper-" + k.String(), &v.config.Upper[k], 0, 1},
			setting{"confidence-hours-" + k.String(), &v.confidence[k], 0.01, 1e5})
	}
	return list
}

func (v *vpa) make() Recipe {
	for k, hours := range v.confidence {
		v.config.Confidence[k] = time.Duration(hours * float64(time.Hour))
	}
	return VPA(v.config)
}
