package recipe

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

type setting struct {
	name             string
	value            *float64
	minimum, maximum float64
}

type builder interface {
	settings() []setting
	choices() []choice
	build() Recipe
}

// choice is a parameter with named options. Choices come before numbers, which can override them.
type choice struct {
	name      string
	options   []string
	apply     func(option string)
	valueHint string                  // values allowed besides the options, empty = none
	parse     func(text string) error // parses such a value
}

func (c choice) set(option string) error {
	if slices.Contains(c.options, option) {
		c.apply(option)
		return nil
	}
	want := "one of " + strings.Join(c.options, ", ")
	if c.parse != nil {
		if c.parse(option) == nil {
			return nil
		}
		if want = c.valueHint; len(c.options) > 0 {
			want = strings.Join(c.options, ", ") + " or " + c.valueHint
		}
	}
	return fmt.Errorf("%s is %q: must be %s", c.name, option, want)
}

// Names returns the names of all recipes.
func Names() []string {
	return []string{"vpa", "loadline", "crane", "attune", "attune-published", "cruisekube", "autopilot"}
}

// newBuilder returns nil for an unknown name. With ownFloors, no default pod minimum applies.
func newBuilder(name string, c Config) (m builder, ownFloors bool) {
	switch name {
	case "", "vpa":
		return newVPA(c), false
	case "loadline":
		return newLoadline(), false
	case "crane":
		return newCrane(), true
	case "attune":
		return newAttune(false), true
	case "attune-published":
		return newAttune(true), true
	case "cruisekube":
		return newCruiseKube(), true
	case "autopilot":
		return newAutopilot(), true
	}
	return nil, false
}

// Parse returns the recipe for a text such as "loadline:cpu=tracking,margin=0.2". Every recipe has
// pod-min-cpu (millicores) and pod-min-memory (MiB). The error lists all problems.
func Parse(text string) (Recipe, error) { return ParseWith(DefaultConfig(), text) }

// ParseWith is Parse with other defaults for the recipe "vpa" and the pod minimum. For a recipe
// with its own minimum, a default pod minimum applies only if it was set explicitly.
func ParseWith(defaults Config, text string) (Recipe, error) {
	name, given, _ := strings.Cut(strings.TrimSpace(text), ":")
	m, ownFloors := newBuilder(name, defaults)
	if m == nil {
		return Recipe{}, fmt.Errorf("recipe %q does not exist: must be one of %s", name, strings.Join(Names(), ", "))
	}
	podMin := [resources.Kinds]float64{defaults.PodMinCPU, defaults.PodMinMemory}
	for k, set := range defaults.PodMinSet {
		if ownFloors && !set {
			podMin[k] = 0
		}
	}
	all := append(m.settings(), setting{"pod-min-cpu", &podMin[resources.CPU], 0, 1e9}, setting{"pod-min-memory", &podMin[resources.Memory], 0, 1e9})
	values, problems := pairs(given)
	for _, c := range m.choices() {
		if option, ok := values[c.name]; ok {
			problems = append(problems, c.set(option))
			delete(values, c.name)
		}
	}
	for _, s := range all {
		if value, ok := values[s.name]; ok {
			problems = append(problems, s.set(value))
			delete(values, s.name)
		}
	}
	for key := range strings.SplitSeq(given, ",") {
		key, _, _ = strings.Cut(key, "=")
		if _, left := values[strings.TrimSpace(key)]; left {
			problems = append(problems, fmt.Errorf("%q does not exist: must be one of %s", strings.TrimSpace(key), strings.Join(names(m, all), ", ")))
			delete(values, strings.TrimSpace(key))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return Recipe{}, fmt.Errorf("recipe %q: %w", text, err)
	}
	r := m.build()
	r.podMin = podMin
	return r, nil
}

func pairs(text string) (values map[string]string, problems []error) {
	values = map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch _, twice := values[key]; {
		case strings.TrimSpace(pair) == "":
		case !ok:
			problems = append(problems, fmt.Errorf("%q has no value: want NAME=VALUE", key))
		case twice:
			problems = append(problems, fmt.Errorf("%s is there twice", key))
		default:
			values[key] = value
		}
	}
	return values, problems
}

func (s setting) set(value string) error {
	parsed, err := strconv.ParseFloat(value, 64)
	if err != nil || !(parsed >= s.minimum && parsed <= s.maximum) {
		return fmt.Errorf("%s is %q: must be a number from %g to %g", s.name, value, s.minimum, s.maximum)
	}
	*s.value = parsed
	return nil
}

func names(m builder, all []setting) []string {
	var list []string
	for _, c := range m.choices() {
		list = append(list, c.name)
	}
	for _, s := range all {
		list = append(list, s.name)
	}
	slices.Sort(list)
	return list
}

type noChoices struct{}

func (noChoices) choices() []choice { return nil }

// Config holds the settings of the recipes. Arrays are indexed by resource.
type Config struct {
	Target, Lower, Upper [resources.Kinds]float64       // quantiles, 0 to 1
	Margin               float64                        // added to every estimate, as a fraction
	Confidence           [resources.Kinds]time.Duration // unit of confidence in the bounds
	PodMinCPU            float64                        // millicores, minimum for all containers of a pod together
	PodMinMemory         float64                        // MiB, minimum for all containers of a pod together
	PodMinSet            [resources.Kinds]bool          // minimum is set explicitly, also applies to recipes with their own
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

// Validate returns all problems of c joined.
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
