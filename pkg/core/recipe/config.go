package recipe

import (
	"errors"
	"fmt"
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Config are the settings of the recipes. Arrays are indexed by kind.
type Config struct {
	Target, Lower, Upper [resources.Kinds]float64       // quantiles, 0 to 1
	Margin               float64                        // added to every estimate, as a fraction of it
	Confidence           [resources.Kinds]time.Duration // unit of confidence in the bounds
	PodMinCPU            float64                        // millicores that the containers of a pod get at least, together
	PodMinMemory         float64                        // MiB that the containers of a pod get at least, together
	PodMinSet            [resources.Kinds]bool          // somebody set that of a kind: it holds for recipes with floors of their own, too
}

// DefaultConfig returns the defaults of the reference recommender.
func DefaultConfig() Config {
	const day = 24 * time.Hour
	return Config{
		Target:       [resources.Kinds]float64{0.9, 0.9},
		Lower:        [resources.Kinds]float64{0.5, 0.5},
		Upper:        [resources.Kinds]float64{0.95, 0.95},
		Margin:       0.15,
		Confidence:   [resources.Kinds]time.Duration{day, day},
		PodMinCPU:    25,
		PodMinMemory: 250,
	}
}

// Validate returns all problems of c joined, nil if there is none.
func (c Config) Validate() error {
	var problems []error
	check := func(ok bool, what string, value any, want string) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s is %v: must be %s", what, value, want))
		}
	}
	for k := range resources.Kind(resources.Kinds) {
		for _, q := range []struct {
			name  string
			value float64
		}{{"lower bound", c.Lower[k]}, {"target", c.Target[k]}, {"upper bound", c.Upper[k]}} {
			check(q.value >= 0 && q.value <= 1, fmt.Sprintf("%s percentile of the %s", k, q.name), q.value, "from 0 to 1")
		}
		check(c.Confidence[k] > 0, fmt.Sprintf("%s confidence interval", k), c.Confidence[k], "more than 0")
	}
	for _, n := range []struct {
		name  string
		value float64
	}{{"safety margin", c.Margin}, {"least CPU of a pod", c.PodMinCPU}, {"least memory of a pod", c.PodMinMemory}} {
		check(n.value >= 0 && n.value <= math.MaxFloat64, n.name, n.value, "a number from 0 up")
	}
	return errors.Join(problems...)
}
