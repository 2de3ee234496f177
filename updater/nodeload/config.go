package nodeload

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/flags"
)

// Values of --node-load-taint.
const (
	Off    = "off"     // taints of before are taken off
	DryRun = "dry-run" // what On would do is logged and counted
	On     = "on"
)

// Bounds of Config.Interval: Prometheus is not to be busy with it, and no node is to have the taint
// for long without reason.
const (
	shortest = time.Second
	longest  = 10 * time.Minute
)

// Config says whether overloaded nodes get a taint, and which nodes are overloaded.
type Config struct {
	Limits

	Mode     string        // Off, DryRun or On
	Metric   string        // name or PromQL expression of load1 by node
	Label    string        // of its series: names the node
	Interval time.Duration // between two rounds, and the longest that one may take
}

// DefaultConfig returns the metric of node_exporter with the label that every scrape sets.
func DefaultConfig() Config {
	return Config{Mode: Off, Metric: "node_load1", Label: "instance", Interval: time.Minute, Limits: Limits{Threshold: 1, Most: 0.3}}
}

// AddFlags binds the group to fs.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Mode, "node-load-taint", c.Mode, "Whether overloaded nodes get the taint "+TaintKey+"=true:NoSchedule: off, which takes such taints off at the start; dry-run, which writes nothing and says in log and metrics what on would do; on, which needs the permission of deploy/node-load. The last two need --prometheus-address.")
	fs.StringVar(&c.Metric, "node-load-metric", c.Metric, "Metric, or PromQL expression, with the load of a node over one minute: how many tasks run or wait. It must leave out series that others than the exporter write, as node_load1{job=\"node-exporter\"} does.")
	fs.StringVar(&c.Label, "node-load-label", c.Label, "Label of the series of --node-load-metric that names the node: by its name or one of its addresses, with a port or without.")
	fs.DurationVar(&c.Interval, "node-load-interval", c.Interval, "How often Prometheus is asked for the load of nodes. An overloaded node gets the taint, and one that is not any more loses it, by so much later.")
	fs.Float64Var(&c.Threshold, "node-load-threshold", c.Threshold, "Load for each CPU of the node's capacity above which a node is overloaded, if it stayed above it for two minutes.")
	fs.Float64Var(&c.Most, "node-load-most", c.Most, "Largest share of the nodes that are ready and not cordoned that has the taint at once, rounded down to whole nodes. More than 0, less than 1.")
}

// Validate returns all problems joined. Prometheus is the address of the one that is asked;
// empty: there is none.
func (c *Config) Validate(prometheus string) error {
	return errors.Join(
		flags.Check(slices.Contains([]string{Off, DryRun, On}, c.Mode), "node-load-taint", c.Mode, "must be off, dry-run or on"),
		flags.Check(prometheus != "" || c.Mode != DryRun && c.Mode != On, "node-load-taint", c.Mode, "needs --prometheus-address, or the load of no node is known"),
		flags.Check(c.Metric != "", "node-load-metric", `""`, "must be a metric such as node_load1, or a PromQL expression"),
		flags.Check(model.LegacyValidation.IsValidLabelName(c.Label), "node-load-label", c.Label, "must be the name of a label: letters, digits and underscores, no digit first"),
		flags.Check(c.Interval >= shortest && c.Interval <= longest, "node-load-interval", c.Interval, "must be from "+shortest.String()+" to 10m"),
		flags.Check(c.Threshold > 0 && !math.IsInf(c.Threshold, 0), "node-load-threshold", c.Threshold, "must be more than 0"),
		flags.Check(c.Most > 0 && c.Most < 1, "node-load-most", c.Most, "must be more than 0 and less than 1: some node must be left for new pods"),
	)
}
