package flags

import (
	"errors"
	"math"
	"strconv"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
)

// Estimate holds the settings of the recipes that compute recommendations from usage.
type Estimate struct{ recipe.Config }

// DefaultEstimate returns the defaults of the reference recommender.
func DefaultEstimate() Estimate { return Estimate{recipe.DefaultConfig()} }

// AddFlags binds the group to fs.
func (e *Estimate) AddFlags(fs *pflag.FlagSet) {
	fs.Float64Var(&e.Margin, "recommendation-margin-fraction", e.Margin, "Added to every estimate, as a fraction of it.")
	fs.Var(&optionalFloat{&e.PodMinCPU, &e.PodMinSet[resources.CPU]}, "pod-recommendation-min-cpu-millicores", "Minimum CPU recommended for a pod, divided among its containers.")
	fs.Var(&optionalFloat{&e.PodMinMemory, &e.PodMinSet[resources.Memory]}, "pod-recommendation-min-memory-mb", "Minimum memory recommended for a pod in MiB, divided among its containers.")
	for k, name := range kindNames() {
		fs.Float64Var(&e.Target[k], "target-"+name+"-percentile", e.Target[k], "Share of the "+name+" usage, 0 to 1, that the target covers.")
		fs.Float64Var(&e.Lower[k], "recommendation-lower-bound-"+name+"-percentile", e.Lower[k], "Share of the "+name+" usage, 0 to 1, that the lower bound covers.")
		fs.Float64Var(&e.Upper[k], "recommendation-upper-bound-"+name+"-percentile", e.Upper[k], "Share of the "+name+" usage, 0 to 1, that the upper bound covers.")
		fs.DurationVar(&e.Confidence[k], "confidence-interval-"+name, e.Confidence[k], "History that gives the "+name+" bounds confidence 1; more narrows them.")
	}
}

// Validate returns all problems of the group.
func (e *Estimate) Validate() error {
	var problems []error
	fraction := func(name string, value float64) {
		problems = append(problems, Check(value >= 0 && value <= 1, name, value, "must be from 0 to 1"))
	}
	nonNegative := func(name string, value float64) {
		problems = append(problems, Check(value >= 0 && !math.IsInf(value, 0), name, value, "must be a number from 0 up"))
	}
	for k, name := range kindNames() {
		fraction("target-"+name+"-percentile", e.Target[k])
		fraction("recommendation-lower-bound-"+name+"-percentile", e.Lower[k])
		fraction("recommendation-upper-bound-"+name+"-percentile", e.Upper[k])
		problems = append(problems, Check(e.Confidence[k] > 0, "confidence-interval-"+name, e.Confidence[k], "must be longer than 0"))
	}
	nonNegative("recommendation-margin-fraction", e.Margin)
	nonNegative("pod-recommendation-min-cpu-millicores", e.PodMinCPU)
	nonNegative("pod-recommendation-min-memory-mb", e.PodMinMemory)
	return errors.Join(problems...)
}

// optionalFloat records whether its flag was set: an explicit value also applies where the default
// does not.
type optionalFloat struct {
	value *float64
	set   *bool
}

func (f *optionalFloat) Set(text string) (err error) {
	*f.value, err = strconv.ParseFloat(text, 64)
	*f.set = true
	return err
}

func (f *optionalFloat) String() string { return strconv.FormatFloat(*f.value, 'g', -1, 64) }

func (f *optionalFloat) Type() string { return "float64" }

func kindNames() [resources.Kinds]string {
	return [resources.Kinds]string{resources.CPU: "cpu", resources.Memory: "memory"}
}
