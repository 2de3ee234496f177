package recipe

import (
	"fmt"
	"math"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

type vpa struct {
	noChoices
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

func (v *vpa) build() Recipe {
	for k, hours := range v.confidence {
		v.config.Confidence[k] = time.Duration(hours * float64(time.Hour))
	}
	return VPA(v.config)
}

// VPA returns the recipe of the reference recommender. The bounds approach the target as the
// history grows. After a day of samples, one per minute, the upper bound is doubled and the lower
// bound hardly reduced.
//
// Example with the defaults and a constant usage of 0.12 cores: the 0.9 quantile is the end of its
// bucket. The n-th bucket ends at 0.01 (1.05ⁿ - 1) / 0.05 cores, here 0.1258 cores, or 125m. The
// margin of 0.15 adds 18m. The floor of 25m for the pod is lower, so the target is 143m.
func VPA(c Config) Recipe {
	r := Recipe{podMin: [resources.Kinds]float64{c.PodMinCPU, c.PodMinMemory}}
	for k := range resources.Kind(resources.Kinds) {
		r.Target[k] = Chain{Quantile(k, c.Target[k]), Margin(c.Margin), Floor(k)}
		r.Lower[k] = Chain{Quantile(k, c.Lower[k]), Margin(c.Margin), Confidence(0.001, -2, c.Confidence[k]), Floor(k)}
		r.Upper[k] = Chain{Quantile(k, c.Upper[k]), Margin(c.Margin), Confidence(1, 1, c.Confidence[k]), Floor(k)}
	}
	return r
}

// Quantile begins a chain with the quantile q (0 to 1) of the weighted usage history.
func Quantile(kind resources.Kind, q float64) Step {
	name := fmt.Sprintf("%s quantile %v", kind, q)
	if kind == resources.CPU {
		return wholeAmountStep(name, func(s Subject, _ resources.Amount) resources.Amount {
			return resources.FromFloat(s.Profile.CPU.Quantile(q) * 1000) // cores
		})
	}
	return wholeAmountStep(name, func(s Subject, _ resources.Amount) resources.Amount {
		return resources.FromFloat(s.Profile.Memory.Quantile(q))
	})
}

// Margin adds a fraction.
func Margin(fraction float64) Step {
	return wholeAmountStep(fmt.Sprintf("margin %v", fraction), func(_ Subject, in resources.Amount) resources.Amount {
		return min(in.Add(in.Scale(fraction)), resources.Max)
	})
}

// Confidence multiplies by (1 + multiplier/c)^exponent, where c is the number of intervals in the
// history. A positive exponent increases the amount, a negative one reduces it. Without history a
// positive amount becomes the maximum or the minimum, while 0 remains 0.
func Confidence(multiplier, exponent float64, interval time.Duration) Step {
	name := fmt.Sprintf("confidence (1 + %v/c)^%v, c in %s", multiplier, exponent, formatShort(interval))
	return wholeAmountStep(name, func(s Subject, in resources.Amount) resources.Amount {
		return in.Scale(math.Pow(1+multiplier/s.Profile.Confidence(interval), exponent))
	})
}

func formatShort(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
