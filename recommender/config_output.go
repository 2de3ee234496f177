package recommender

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/recommender/recommend"
)

// Output says how recommendations are rounded and capped, and what is told of
// them.
type Output struct {
	CPUStep, MemoryStep int
	HumanizeMemory      bool
	IntegerCPU          bool // honour the integer CPU annotation
	MaxCPU, MaxMemory   flags.Quantity
	Tolerance           float64 // fraction by which a bound may move before it is written at once
	WorkloadMetrics     bool    // serve the quality of each recommendation
}

// DefaultOutput returns the defaults of the reference recommender, and a
// tolerance of 1 %.
func DefaultOutput() Output { return Output{CPUStep: 1, MemoryStep: 1, Tolerance: 0.01} }

// AddFlags binds the group to fs.
func (o *Output) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.CPUStep, "round-cpu-millicores", o.CPUStep, "Round CPU up to a multiple of this.")
	fs.IntVar(&o.MemoryStep, "round-memory-bytes", o.MemoryStep, "Round memory up to a multiple of this.")
	fs.BoolVar(&o.HumanizeMemory, "humanize-memory", o.HumanizeMemory, "Deprecated: write memory with two decimals in the largest unit.")
	fs.BoolVar(&o.IntegerCPU, "cpu-integer-post-processor-enabled", o.IntegerCPU, "Round CPU up to whole cores where a VPA has the annotation vpa-post-processor.kubernetes.io/<container>_integerCPU=true.")
	fs.Float64Var(&o.Tolerance, "status-tolerance", o.Tolerance, "A lower or upper bound that moved by at most this fraction, or came a little nearer to the target because a short history got longer, is written within an hour, and at once with any other change. Where many bounds move more than that, each pass writes some of them in turn. 0: always at once.")
	fs.BoolVar(&o.WorkloadMetrics, "workload-metrics", o.WorkloadMetrics, "Serve metrics of the quality of each recommendation: up to 19 series for each VPA and container.")
	fs.Var(&o.MaxCPU, "container-recommendation-max-allowed-cpu", "Most CPU recommended for a container whose policy has no maxAllowed. Unset: no limit.")
	fs.Var(&o.MaxMemory, "container-recommendation-max-allowed-memory", "Most memory recommended for a container whose policy has no maxAllowed. Unset: no limit.")
}

// Validate returns all problems of the group.
func (o *Output) Validate() error {
	return errors.Join(
		flags.Check(o.Tolerance >= 0 && o.Tolerance < 1, "status-tolerance", o.Tolerance, "must be at least 0 and less than 1"),
		o.MaxCPU.Check("container-recommendation-max-allowed-cpu"),
		o.MaxMemory.Check("container-recommendation-max-allowed-memory"),
	)
}

// Format returns how amounts are printed.
func (o *Output) Format() convert.Format {
	return convert.Format{CPUStep: int64(o.CPUStep), MemoryStep: int64(o.MemoryStep), HumanizeMemory: o.HumanizeMemory}
}

// Limits returns the settings of post-processing.
func (o *Output) Limits() recommend.OutputLimits {
	most := corev1.ResourceList{}
	if o.MaxCPU.Given {
		most[corev1.ResourceCPU] = o.MaxCPU.Value
	}
	if o.MaxMemory.Given {
		most[corev1.ResourceMemory] = o.MaxMemory.Value
	}
	return recommend.OutputLimits{IntegerCPU: o.IntegerCPU, MaxAllowed: most}
}
