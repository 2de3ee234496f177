package recommender

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

// Config holds all command line settings.
type Config struct {
	Kube     flags.Kube
	Logging  flags.Logging
	Election flags.Election
	Serving  flags.Serving
	Gates    flags.Gates
	Estimate flags.Estimate
	Policies flags.Policies
	Recipe   string // of VPAs without a recipe

	Name        string        // VPAs that list it in spec.recommenders are served
	Interval    time.Duration // between two iterations
	MemorySaver bool          // track only pods that a VPA selects
	Explain     bool          // serve explanations
	Workers     int           // parallel status and checkpoint writes

	Checkpoints Checkpoints
	Aggregation Aggregation
	Output      Output
	Prometheus  Prometheus
	External    External
}

// Default returns the configuration with all flags at their defaults.
func Default() *Config {
	return &Config{
		Kube:        flags.DefaultKube(),
		Logging:     flags.DefaultLogging(),
		Election:    flags.DefaultElection("vpa-recommender-lease"),
		Serving:     flags.Serving{Address: ":8942"},
		Estimate:    flags.DefaultEstimate(),
		Recipe:      "vpa",
		Name:        model.DefaultRecommender,
		Interval:    time.Minute,
		Explain:     true,
		Workers:     10,
		Checkpoints: DefaultCheckpoints(),
		Aggregation: DefaultAggregation(),
		Output:      Output{CPUStep: 1, MemoryStep: 1, Tolerance: 0.01},
		Prometheus:  DefaultPrometheus(),
	}
}

// AddFlags binds every flag to fs.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Kube.AddFlags(fs)
	c.Logging.AddFlags(fs)
	c.Election.AddFlags(fs)
	c.Serving.AddFlags(fs)
	c.Gates.AddFlags(fs)
	c.Estimate.AddFlags(fs)
	c.Policies.AddFlags(fs)

	fs.StringVar(&c.Recipe, "recipe", c.Recipe, `Recipe that turns usage into a recommendation, optionally with settings, for example "loadline:cpu=tracking". One of `+
		strings.Join(recipe.Names(), ", ")+`; "vpa" is the recipe of the reference recommender with the settings of the other flags. A VPA can override it with the annotation `+recipe.Annotation+".")
	fs.StringVar(&c.Name, "recommender-name", c.Name, `Name of this recommender. It serves VPAs that list it in spec.recommenders; "default" also serves VPAs without a list.`)
	fs.DurationVar(&c.Interval, "recommender-interval", c.Interval, "Time between two iterations. /health-check fails after five intervals without one.")
	fs.BoolVar(&c.MemorySaver, "memory-saver", c.MemorySaver, "Keep history only for pods that some VPA selects.")
	fs.BoolVar(&c.Explain, "explain", c.Explain, "Serve explanations of recommendations at /explain/vpa on the address of the metrics, without authentication: any pod that reaches it can read the recommendation of a VPA by name.")
	fs.IntVar(&c.Workers, "update-worker-count", c.Workers, "Parallel writes of status and of checkpoints.")

	c.Checkpoints.AddFlags(fs)
	c.Aggregation.AddFlags(fs)
	c.Output.AddFlags(fs)
	c.Prometheus.AddFlags(fs)
	c.External.AddFlags(fs)
}

// Complete reads the files that flags refer to.
func (c *Config) Complete() error { return c.Prometheus.Complete() }

func (c *Config) usageSourceConfig(m *metrics) sourceConfig {
	return sourceConfig{
		Prometheus: c.Prometheus, External: c.External, Namespace: c.Kube.Namespace, History: c.Checkpoints.InPrometheus(),
		metrics: m,
	}
}

// Validate returns all problems joined.
func (c *Config) Validate() error {
	return errors.Join(
		c.Kube.Validate(),
		c.Election.Validate(),
		c.Serving.Validate(),
		c.Estimate.Validate(),
		c.validateRecipe(),
		flags.Check(c.Name != "", "recommender-name", `""`, "must not be empty"),
		flags.Check(c.Interval > 0, "recommender-interval", c.Interval, "must be longer than 0"),
		flags.Check(c.Workers > 0, "update-worker-count", c.Workers, "must be at least 1"),
		flags.Check(!c.External.Use || c.Prometheus.UsageSource != UsageFromPrometheus, "use-external-metrics", c.External.Use,
			"excludes --usage-source="+c.Prometheus.UsageSource+": usage comes from one place"),
		c.Checkpoints.Validate(),
		c.Aggregation.Validate(),
		c.Output.Validate(),
		c.Prometheus.Validate(c.Checkpoints.InPrometheus() || c.Prometheus.UsageSource == UsageFromPrometheus),
		c.External.Validate(),
	)
}

// validateRecipe ignores invalid estimate settings, because no recipe can be built with them.
func (c *Config) validateRecipe() error {
	if _, err := recipe.NewCache(c.Recipe, c.Estimate.Config); err != nil && c.Estimate.Config.Validate() == nil {
		return flags.Problem("recipe", c.Recipe, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

func (c *Config) warnings() []string {
	return slices.Concat(c.Kube.Warnings(), c.Prometheus.Warnings(), c.Checkpoints.Warnings())
}

// Aggregation configures how samples become histories.
type Aggregation struct {
	Interval       time.Duration // length of a memory peak window
	Count          int64         // windows kept
	CPUHalfLife    time.Duration
	MemoryHalfLife time.Duration
	OOMRatio       float64
	OOMMinBump     float64 // bytes
}

// DefaultAggregation returns the defaults of the reference recommender.
func DefaultAggregation() Aggregation {
	rules := usage.DefaultConfig().Rules
	return Aggregation{
		Interval:       rules.Interval,
		Count:          rules.Count,
		CPUHalfLife:    24 * time.Hour,
		MemoryHalfLife: 24 * time.Hour,
		OOMRatio:       rules.OOMRatio,
		OOMMinBump:     float64(rules.OOMMinBump),
	}
}

// AddFlags binds the group to fs.
func (a *Aggregation) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&a.Interval, "memory-aggregation-interval", a.Interval, "Length of the window for the memory peak.")
	fs.Int64Var(&a.Count, "memory-aggregation-interval-count", a.Count, "Windows kept; this times the interval is the age at which idle history expires.")
	fs.DurationVar(&a.MemoryHalfLife, "memory-histogram-decay-half-life", a.MemoryHalfLife, "Age at which a memory peak has lost half its weight.")
	fs.DurationVar(&a.CPUHalfLife, "cpu-histogram-decay-half-life", a.CPUHalfLife, "Age at which a CPU sample has lost half its weight.")
	fs.Float64Var(&a.OOMRatio, "oom-bump-up-ratio", a.OOMRatio, "Minimum factor by which the memory of a container is raised after an out-of-memory kill.")
	fs.Float64Var(&a.OOMMinBump, "oom-min-bump-up-bytes", a.OOMMinBump, "Minimum number of bytes by which the memory of a container is raised after an out-of-memory kill.")
}

// Validate returns all problems of the group.
func (a *Aggregation) Validate() error {
	return errors.Join(
		flags.Check(a.Interval > 0, "memory-aggregation-interval", a.Interval, "must be longer than 0"),
		flags.Check(a.Count > 0, "memory-aggregation-interval-count", a.Count, "must be at least 1"),
		flags.Check(a.Count <= 0 || a.Interval <= 0 || a.Interval <= maxExpiry/time.Duration(a.Count), "memory-aggregation-interval-count", a.Count,
			"times --memory-aggregation-interval="+a.Interval.String()+" must be less than 100 years"),
		flags.Check(a.MemoryHalfLife > 0, "memory-histogram-decay-half-life", a.MemoryHalfLife, "must be longer than 0"),
		flags.Check(a.CPUHalfLife > 0, "cpu-histogram-decay-half-life", a.CPUHalfLife, "must be longer than 0"),
		flags.Check(a.OOMRatio >= 1, "oom-bump-up-ratio", a.OOMRatio, "must be at least 1"),
		flags.Check(a.OOMMinBump >= 0, "oom-min-bump-up-bytes", a.OOMMinBump, "must not be negative"),
	)
}

// maxExpiry is surely a mistake as an expiry age, and close to the longest time.Duration.
const maxExpiry = 100 * 365 * 24 * time.Hour

// Store returns the settings of the usage store.
func (a *Aggregation) Store() usage.StoreConfig {
	return usage.StoreConfig{
		Shape: usage.NewProfileShape(a.CPUHalfLife, a.MemoryHalfLife),
		Rules: usage.Rules{
			OOMRatio:   a.OOMRatio,
			OOMMinBump: resources.FromFloat(a.OOMMinBump),
			Interval:   a.Interval,
			Count:      a.Count,
		},
	}
}

// maxCheckpointSkew is how far the clocks of nodes and of the previous recommender may be ahead.
const maxCheckpointSkew = time.Hour

// Ahead returns how far the times of a checkpoint may be in the future. The reference time of the
// decay is up to half a half-life after a sample. A memory peak counts from the end of its window,
// which is unbounded if VPAs may set it.
func (a *Aggregation) Ahead(perVPA bool) checkpoint.MaxSkew {
	skew := checkpoint.MaxSkew{Sample: maxCheckpointSkew, CPU: maxCheckpointSkew + a.CPUHalfLife}
	if !perVPA {
		skew.Window = maxCheckpointSkew + a.Interval
		skew.Memory = skew.Window + a.MemoryHalfLife
	}
	return skew
}

// Checkpoints configures where and how often history is saved.
type Checkpoints struct {
	Storage         string        // "prometheus", any other value: checkpoints
	CollectInterval time.Duration // min time between two orphan clean-ups
	Timeout         time.Duration // of one iteration
	Interval        time.Duration // between two non-urgent writes of a VPA
	Min             int           // deprecated, no effect
}

const defaultMinCheckpoints = 10

// DefaultCheckpoints returns the defaults.
func DefaultCheckpoints() Checkpoints {
	return Checkpoints{
		CollectInterval: 10 * time.Minute,
		Timeout:         time.Minute,
		Interval:        10 * time.Minute,
		Min:             defaultMinCheckpoints,
	}
}

// AddFlags binds the group to fs.
func (c *Checkpoints) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Storage, "storage", c.Storage, `"prometheus" loads history from Prometheus; any other value saves it in checkpoint objects.`)
	fs.DurationVar(&c.CollectInterval, "checkpoints-gc-interval", c.CollectInterval, "Minimum time between two clean-ups of checkpoints without a VPA.")
	fs.DurationVar(&c.Timeout, "checkpoints-timeout", c.Timeout, "Time limit for checkpoint writes in one iteration. The rest is written in the next one.")
	fs.DurationVar(&c.Interval, "checkpoints-interval", c.Interval, "Interval between writes of the changed history of a VPA. History behind a newly published target is written immediately. 0: in each iteration.")
	fs.IntVar(&c.Min, "min-checkpoints", c.Min, "Deprecated, has no effect.")
}

// InPrometheus reports whether history comes from Prometheus.
func (c *Checkpoints) InPrometheus() bool { return c.Storage == "prometheus" }

// Validate returns all problems of the group.
func (c *Checkpoints) Validate() error {
	return errors.Join(
		flags.Check(c.CollectInterval >= 0, "checkpoints-gc-interval", c.CollectInterval, "must not be negative"),
		flags.Check(c.Interval >= 0, "checkpoints-interval", c.Interval, "must not be negative"),
		flags.Check(c.Timeout > 0, "checkpoints-timeout", c.Timeout, "must be longer than 0"),
	)
}

// Warnings reports the deprecated flag if it is set.
func (c *Checkpoints) Warnings() []string {
	if c.Min == defaultMinCheckpoints {
		return nil
	}
	return []string{flags.Problem("min-checkpoints", c.Min, "deprecated, has no effect").Error()}
}

// Output configures how recommendations are rounded, capped and published.
type Output struct {
	CPUStep, MemoryStep int
	HumanizeMemory      bool
	IntegerCPU          bool // honor the integer CPU annotation
	MaxCPU, MaxMemory   flags.Quantity
	Tolerance           float64 // fraction by which a bound may move without a write
	WorkloadMetrics     bool    // serve quality metrics of each recommendation
}

// AddFlags binds the group to fs.
func (o *Output) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.CPUStep, "round-cpu-millicores", o.CPUStep, "Round CPU up to a multiple of this.")
	fs.IntVar(&o.MemoryStep, "round-memory-bytes", o.MemoryStep, "Round memory up to a multiple of this.")
	fs.BoolVar(&o.HumanizeMemory, "humanize-memory", o.HumanizeMemory, "Deprecated: write memory with two decimals in the largest unit.")
	fs.BoolVar(&o.IntegerCPU, "cpu-integer-post-processor-enabled", o.IntegerCPU, "Round CPU up to whole cores where a VPA has the annotation vpa-post-processor.kubernetes.io/<container>_integerCPU=true.")
	fs.Float64Var(&o.Tolerance, "status-tolerance", o.Tolerance, "Changes of bounds up to this fraction, or slight approaches to the target as a short history grows, are written within an hour or with any other change. If many bounds change more, each iteration writes some of them in turn. 0: all changes are written immediately.")
	fs.BoolVar(&o.WorkloadMetrics, "workload-metrics", o.WorkloadMetrics, "Serve metrics of the quality of each recommendation: up to 19 series for each VPA and container.")
	fs.Var(&o.MaxCPU, "container-recommendation-max-allowed-cpu", "Maximum CPU recommendation for containers without maxAllowed in their policy. Unset: no limit.")
	fs.Var(&o.MaxMemory, "container-recommendation-max-allowed-memory", "Maximum memory recommendation for containers without maxAllowed in their policy. Unset: no limit.")
}

// Validate returns all problems of the group.
func (o *Output) Validate() error {
	return errors.Join(
		flags.Check(o.Tolerance >= 0 && o.Tolerance < 1, "status-tolerance", o.Tolerance, "must be at least 0 and less than 1"),
		o.MaxCPU.Check("container-recommendation-max-allowed-cpu"),
		o.MaxMemory.Check("container-recommendation-max-allowed-memory"),
	)
}

// Format returns how quantities are printed.
func (o *Output) Format() convert.Format {
	return convert.Format{CPUStep: int64(o.CPUStep), MemoryStep: int64(o.MemoryStep), HumanizeMemory: o.HumanizeMemory}
}

// Limits returns the settings of post-processing.
func (o *Output) Limits() recommend.OutputLimits {
	maxAllowed := corev1.ResourceList{}
	if o.MaxCPU.IsSet {
		maxAllowed[corev1.ResourceCPU] = o.MaxCPU.Value
	}
	if o.MaxMemory.IsSet {
		maxAllowed[corev1.ResourceMemory] = o.MaxMemory.Value
	}
	return recommend.OutputLimits{IntegerCPU: o.IntegerCPU, MaxAllowed: maxAllowed}
}
