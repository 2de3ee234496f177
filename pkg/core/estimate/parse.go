package estimate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/amount"
)

// Parse returns the recipe that a text names, and its settings: the name alone,
// or with settings that differ from those of c, as in
//
//	vpa:target-cpu=0.95,margin=0.1
//
// The error tells all problems.
func Parse(text string, c Config) (Recipe, Config, error) {
	name, settings, _ := strings.Cut(text, ":")
	var problems []error
	for setting := range strings.SplitSeq(settings, ",") {
		key, value, _ := strings.Cut(setting, "=")
		if setting == "" {
			continue
		}
		if err := c.set(strings.TrimSpace(key), strings.TrimSpace(value)); err != nil {
			problems = append(problems, err)
		}
	}
	problems = append(problems, c.Validate())
	recipe, err := ForName(name, c)
	if err := errors.Join(append(problems, err)...); err != nil {
		return Recipe{}, c, fmt.Errorf("recipe %q: %w", text, err)
	}
	return recipe, c, nil
}

// numbers are the settings that are numbers, by name.
func (c *Config) numbers() map[string]*float64 {
	return map[string]*float64{
		"margin":         &c.Margin,
		"pod-min-cpu":    &c.PodMinCPU,
		"pod-min-memory": &c.PodMinMemory,
		"target-cpu":     &c.Target[amount.CPU],
		"target-memory":  &c.Target[amount.Memory],
		"lower-cpu":      &c.Lower[amount.CPU],
		"lower-memory":   &c.Lower[amount.Memory],
		"upper-cpu":      &c.Upper[amount.CPU],
		"upper-memory":   &c.Upper[amount.Memory],
	}
}

func (c *Config) set(key, value string) error {
	if number, ok := c.numbers()[key]; ok {
		parsed, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("setting %s is %q: must be a number", key, value)
		}
		*number = parsed
		return nil
	}
	for k := range amount.Kind(amount.Kinds) {
		if key != "confidence-"+k.String() {
			continue
		}
		parsed, err := time.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("setting %s is %q: must be a duration, as 24h", key, value)
		}
		c.Confidence[k] = parsed
		return nil
	}
	return fmt.Errorf("setting %q does not exist: must be one of %s", key, strings.Join(c.Settings(), ", "))
}

// Settings returns the names of all settings, in order.
func (c *Config) Settings() []string {
	names := []string{"confidence-cpu", "confidence-memory"}
	for name := range c.numbers() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
