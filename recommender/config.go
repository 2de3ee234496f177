package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/recommender/options"
)

// Config is everything that can be set on the command line.
type Config struct {
	Kube     flags.Kube
	Logging  flags.Logging
	Election flags.Election
	Serving  flags.Serving
	Gates    flags.Gates
	Estimate flags.Estimate

	Name        string        // which VPAs are served: those that name this recommender
	Interval    time.Duration // between two passes
	MemorySaver bool          // track only pods that a VPA selects
	Workers     int           // for status and checkpoint writes

	Checkpoints Checkpoints
	Aggregation options.Aggregation
	Output      options.Output
	Prometheus  options.Prometheus
	External    options.External
}

// Checkpoints says how history is kept between two runs.
type Checkpoints struct {
	Storage         string        // "prometheus", or anything else for checkpoints
	CollectInterval time.Duration // least time between two clean-ups of orphans
	Timeout         time.Duration // of writing in one pass
	Interval        time.Duration // between two writes of a VPA that can wait
	Min             int           // has no effect
}

// storagePrometheus is the storage without checkpoints.
const storagePrometheus = "prometheus"

// Default returns the configuration without any flag.
func Default() *Config {
	return &Config{
		Kube:     flags.DefaultKube(),
		Logging:  flags.DefaultLogging(),
		Election: flags.DefaultElection("vpa-recommender-lease"),
		Serving:  flags.Serving{Address: ":8942"},
		Estimate: flags.DefaultEstimate(),
		Name:     "default",
		Interval: time.Minute,
		Workers:  10,
		Checkpoints: Checkpoints{
			CollectInterval: 10 * time.Minute,
			Timeout:         time.Minute,
			Interval:        10 * time.Minute,
			Min:             10,
		},
		Aggregation: options.DefaultAggregation(),
		Output:      options.DefaultOutput(),
		Prometheus:  options.DefaultPrometheus(),
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

	fs.StringVar(&c.Name, "recommender-name", c.Name, `Own name. VPAs that list it in spec.recommenders are served; "default" serves those that list none.`)
	fs.DurationVar(&c.Interval, "recommender-interval", c.Interval, "Time between two passes. /health-check fails after five times this without one.")
	fs.BoolVar(&c.MemorySaver, "memory-saver", c.MemorySaver, "Keep history only for pods that some VPA selects.")
	fs.IntVar(&c.Workers, "update-worker-count", c.Workers, "Parallel writes of status and of checkpoints.")

	fs.StringVar(&c.Checkpoints.Storage, "storage", c.Checkpoints.Storage, `"prometheus" takes history from there; everything else keeps it in checkpoint objects.`)
	fs.DurationVar(&c.Checkpoints.CollectInterval, "checkpoints-gc-interval", c.Checkpoints.CollectInterval, "Least time between two clean-ups of checkpoints without VPA.")
	fs.DurationVar(&c.Checkpoints.Timeout, "checkpoints-timeout", c.Checkpoints.Timeout, "How long a pass may write checkpoints; the rest follows in the next.")
	fs.DurationVar(&c.Checkpoints.Interval, "checkpoints-interval", c.Checkpoints.Interval, "How often the changed history of a VPA is written; what a published target rests on is written at once. 0: in each pass.")
	fs.IntVar(&c.Checkpoints.Min, "min-checkpoints", c.Checkpoints.Min, "Deprecated, has no effect.")

	c.Aggregation.AddFlags(fs)
	c.Output.AddFlags(fs)
	c.Prometheus.AddFlags(fs)
	c.External.AddFlags(fs)
}

// Complete reads what flags refer to.
func (c *Config) Complete() error { return c.Prometheus.Complete() }

// fromPrometheus tells whether history comes from there, and not from checkpoints.
func (c *Config) fromPrometheus() bool { return c.Checkpoints.Storage == storagePrometheus }

// Validate returns all problems joined.
func (c *Config) Validate() error {
	return errors.Join(
		c.Kube.Validate(),
		c.Election.Validate(),
		c.Serving.Validate(),
		c.Estimate.Validate(),
		flags.Check(c.Name != "", "recommender-name", `""`, "must not be empty"),
		flags.Check(c.Interval > 0, "recommender-interval", c.Interval, "must be longer than 0"),
		flags.Check(c.Workers > 0, "update-worker-count", c.Workers, "must be at least 1"),
		flags.Check(!c.External.Use || c.Prometheus.UsageSource != options.UsageFromPrometheus, "use-external-metrics", c.External.Use,
			"excludes --usage-source="+c.Prometheus.UsageSource+": usage comes from one place"),
		flags.Check(c.Checkpoints.CollectInterval >= 0, "checkpoints-gc-interval", c.Checkpoints.CollectInterval, "must not be negative"),
		flags.Check(c.Checkpoints.Interval >= 0, "checkpoints-interval", c.Checkpoints.Interval, "must not be negative"),
		flags.Check(c.Checkpoints.Timeout > 0, "checkpoints-timeout", c.Checkpoints.Timeout, "must be longer than 0"),
		c.Aggregation.Validate(),
		c.Output.Validate(),
		c.Prometheus.Validate(c.fromPrometheus() || c.Prometheus.UsageSource == options.UsageFromPrometheus),
		c.External.Validate(),
	)
}

// warnings returns a line for each setting that is accepted but has no effect or
// probably not the one that was meant.
func (c *Config) warnings() []string {
	lines := append(c.Kube.Warnings(), c.Prometheus.Warnings()...)
	if c.Checkpoints.Min != 10 {
		lines = append(lines, flags.Problem("min-checkpoints", c.Checkpoints.Min, "deprecated, has no effect").Error())
	}
	return lines
}
