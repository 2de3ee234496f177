// Package recommender measures an iteration of the recommender on a local control plane with many
// pods, compared with the reference recommender.
//
// It fills a cluster with Deployments that play recorded usage, runs a recommender with new VPAs
// until every VPA has a recommendation, and then measures some iterations: the duration of each
// step, requests to the API server, CPU time and memory. `make scale` runs it and writes the table
// to lab/docs/scale.md. It fails if an iteration of Loadline takes longer than -limit.
package recommender

import (
	"context"
	"flag"
	"fmt"
	"time"

	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/hack/document"
)

type options struct {
	load
	interval time.Duration // between two iterations
	passes   int           // measured iterations
	warmUp   time.Duration // before the measured iterations
	history  time.Duration // of each VPA at the start
	scrape   time.Duration // of metrics-server
	limit    time.Duration // for an iteration of Loadline
	only     string        // one of the subjects, empty: both
	document string        // file for the table, empty: none
}

// Main measures with the given arguments, and exits with an error on failure.
func Main(args []string) {
	fs := flag.NewFlagSet("bench recommender", flag.ExitOnError)
	var o options
	fs.IntVar(&o.vpas, "vpas", 2000, "VPAs, each with a Deployment")
	fs.IntVar(&o.pods, "pods", 10000, "pods of all Deployments together")
	fs.IntVar(&o.namespaces, "namespaces", 10, "namespaces that hold them")
	fs.DurationVar(&o.interval, "interval", time.Minute, "time between two passes")
	fs.IntVar(&o.passes, "passes", 10, "passes that are measured")
	fs.DurationVar(&o.warmUp, "warm-up", 13*time.Minute, "time before those, counted from when every VPA has a recommendation; the longest recording takes 12 minutes")
	fs.DurationVar(&o.history, "history", 8*24*time.Hour, "how far the checkpoints go back that are there at the start; 0: there are none")
	fs.DurationVar(&o.scrape, "scrape", 15*time.Second, "how often metrics-server scrapes")
	fs.DurationVar(&o.limit, "limit", 5*time.Second, "what the slowest measured pass of ours may take")
	fs.StringVar(&o.only, "only", "", `"`+ours+`" or "`+reference+`": leave the other out`)
	fs.StringVar(&o.document, "document", "", "Markdown file whose figures are replaced by those of this run")
	_ = fs.Parse(args) // exits on errors
	harness.Main("bench recommender", func(ctx context.Context) error {
		nodes := harness.Options{
			Nodes: o.pods/slotsPerNode + 1,
			Args:  []string{fmt.Sprint("--node-pods=", slotsPerNode), "--node-cpu=64", "--node-memory=256Gi", fmt.Sprint("--metrics-every=", o.scrape)},
		}
		return harness.Run(ctx, "scale", nodes, func(ctx context.Context, cluster *harness.Cluster) error { return run(ctx, cluster, o) })
	})
}

// slotsPerNode is the number of pods that fit on a simulated node.
const slotsPerNode = 110

func run(ctx context.Context, cluster *harness.Cluster, o options) error {
	subjects, err := selectSubjects(ctx, o.only, cluster.Dir)
	if err != nil {
		return err
	}
	filled, err := o.fill(ctx, cluster)
	if err != nil {
		return err
	}
	r := report{options: o, filled: filled}
	for _, s := range subjects {
		result, err := measure(ctx, cluster, o, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.results = append(r.results, result)
	}
	fmt.Print("\n", r.markdown())
	if o.document != "" {
		if err := document.Fill(o.document, "recommender figures", r.markdown()); err != nil {
			return err
		}
	}
	return r.judge()
}
