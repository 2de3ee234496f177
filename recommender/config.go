package recommender

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/recommender/model"
)

// Config is everything that can be set on the command line.
type Config struct {
	Kube     flags.Kube
	Logging  flags.Logging
	Election flags.Election
	Serving  flags.Serving
	Gates    flags.Gates
	Estimate flags.Estimate
	Policies flags.Policies
	Recipe   Recipe

	Name        string        // which VPAs are served: those that name this recommender
	Interval    time.Duration // between two passes
	MemorySaver bool          // track only pods that a VPA selects
	Explain     bool          // serve explanations
	Workers     int           // for status and checkpoint writes

	Checkpoints Checkpoints
	Aggregation Aggregation
	Output      Output
	Prometheus  Prometheus
	External    External
}

// Default returns the configuration without any flag.
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
		Output:      DefaultOutput(),
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

	c.Recipe.AddFlags(fs)
	fs.StringVar(&c.Name, "recommender-name", c.Name, `Own name. VPAs that list it in spec.recommenders are served; "default" serves those that list none.`)
	fs.DurationVar(&c.Interval, "recommender-interval", c.Interval, "Time between two passes. /health-check fails after five times this without one.")
	fs.BoolVar(&c.MemorySaver, "memory-saver", c.MemorySaver, "Keep history only for pods that some VPA selects.")
	fs.BoolVar(&c.Explain, "explain", c.Explain, "Serve explanations of recommendations at /explain/vpa on the address of the metrics, without authentication: any pod that reaches it can read the sizes of a VPA by name.")
	fs.IntVar(&c.Workers, "update-worker-count", c.Workers, "Parallel writes of status and of checkpoints.")

	c.Checkpoints.AddFlags(fs)
	c.Aggregation.AddFlags(fs)
	c.Output.AddFlags(fs)
	c.Prometheus.AddFlags(fs)
	c.External.AddFlags(fs)
}

// Complete reads what flags refer to.
func (c *Config) Complete() error { return c.Prometheus.Complete() }

// origin returns where usage comes from, with requests counted in m.
func (c *Config) origin(m *metrics) sourceConfig {
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
		c.Recipe.Validate(c.Estimate.Config),
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

// warnings returns a line for each setting that is accepted but has no effect or
// probably not the one that was meant.
func (c *Config) warnings() []string {
	return slices.Concat(c.Kube.Warnings(), c.Prometheus.Warnings(), c.Checkpoints.Warnings())
}
