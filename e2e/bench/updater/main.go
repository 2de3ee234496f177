// Package updater measures how long the updater takes if every pod of many VPAs needs an in-place
// resize at once, compared with the reference updater.
//
// For each number of VPAs it creates Deployments of two pods and VPAs with fixed recommendations,
// runs an updater until all pods are resized, and deletes all objects. `make scale-updater` runs it
// and writes the table to lab/docs/scale.md. It fails if a pod is evicted or does not have its
// recommended resources at the end.
package updater

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/hack/document"
)

// Names of the updaters in the flag -only and in the table.
const (
	ours      = "loadline"
	reference = "reference"
)

type options struct {
	sizes    []int         // numbers of VPAs
	interval time.Duration // between two iterations
	only     string        // one of the updaters, empty: both
	document string        // file for the table, empty: none
}

// Main measures with the given arguments, and exits with an error on failure.
func Main(args []string) {
	fs := flag.NewFlagSet("bench updater", flag.ExitOnError)
	var o options
	sizes := fs.String("vpas", "25,100,250,500,1000", "numbers of VPAs, each with two pods, one after the other")
	fs.DurationVar(&o.interval, "interval", time.Minute, "time between two passes")
	fs.StringVar(&o.only, "only", "", `"`+ours+`" or "`+reference+`": leave the other out`)
	fs.StringVar(&o.document, "document", "", "Markdown file whose figures are replaced by those of this run")
	_ = fs.Parse(args) // exits on errors
	harness.Main("bench updater", func(ctx context.Context) (err error) {
		if o.sizes, err = parse(*sizes); err != nil {
			return err
		}
		nodes := harness.Options{
			Nodes: slices.Max(o.sizes)*podsPerVPA/slotsPerNode + 1,
			Args:  []string{fmt.Sprint("--node-pods=", slotsPerNode), "--node-cpu=64", "--node-memory=256Gi"},
		}
		return harness.Run(ctx, "scale-updater", nodes, func(ctx context.Context, cluster *harness.Cluster) error { return run(ctx, cluster, o) })
	})
}

func parse(text string) (sizes []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-vpas=%s: %q must be a number above 0", text, part)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// slotsPerNode is the number of pods that fit on a simulated node.
const slotsPerNode = 110

func run(ctx context.Context, cluster *harness.Cluster, o options) error {
	subjects, err := selectSubjects(ctx, o, cluster.Dir)
	if err != nil {
		return err
	}
	var results []result
	for _, n := range o.sizes {
		for _, s := range subjects {
			r, err := crowd{cluster, s, n}.measure(ctx, o)
			if err != nil {
				return fmt.Errorf("%d VPAs, %s: %w", n, s.name, err)
			}
			results = append(results, r)
		}
	}
	figures := table(o, results)
	fmt.Print("\n", figures)
	if o.document == "" {
		return nil
	}
	return document.Fill(o.document, "updater figures", figures)
}

type subject struct {
	name   string
	binary string // empty: Loadline's, from bin/
}

// selectSubjects returns the updaters to measure. It builds the reference in dir.
func selectSubjects(ctx context.Context, o options, dir string) (all []subject, err error) {
	if o.only != reference {
		all = append(all, subject{name: ours})
	}
	if o.only != ours {
		s := subject{reference, filepath.Join(dir, "reference-updater")}
		fmt.Println("build the updater of", harness.ReferenceModule)
		if err := harness.BuildReference(ctx, "./pkg/updater", s.binary); err != nil {
			return nil, fmt.Errorf("build %s: %w", harness.ReferenceModule, err)
		}
		all = append(all, s)
	}
	return all, nil
}
