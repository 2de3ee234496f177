package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

// Names of what is measured, as -only takes them and the table shows them.
const (
	ours      = "loadline"
	reference = "reference"
)

// options are what the command line sets.
type options struct {
	sizes    []int         // numbers of VPAs
	interval time.Duration // between two passes
	only     string        // one of the updaters; empty: both
	document string        // gets the table; empty: none
}

func main() {
	var o options
	sizes := flag.String("vpas", "25,100,250,500,1000", "numbers of VPAs, each with two pods, one after the other")
	flag.DurationVar(&o.interval, "interval", time.Minute, "time between two passes")
	flag.StringVar(&o.only, "only", "", `"`+ours+`" or "`+reference+`": leave the other out`)
	flag.StringVar(&o.document, "document", "", "Markdown file whose figures are replaced by those of this run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if o.sizes, err = parse(*sizes); err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rush:", err)
		os.Exit(1)
	}
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

// slotsPerNode is how many pods fit on a simulated node.
const slotsPerNode = 110

func run(ctx context.Context, o options) (err error) {
	binary := os.Getenv("LOADLINE_CLUSTER")
	if binary == "" {
		return errors.New("the variable LOADLINE_CLUSTER must name the program of the local control plane; `make scale-updater` builds it and sets it")
	}
	dir, err := os.MkdirTemp("", "loadline-rush-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	subjects, err := chosen(ctx, o, dir)
	if err != nil {
		return err
	}
	cluster, err := harness.Start(ctx, harness.Options{
		Binary: binary, Root: "..", Dir: filepath.Join(dir, "cluster"), Out: os.Stdout,
		Nodes: slices.Max(o.sizes)*podsPerVPA/slotsPerNode + 1,
		Args:  []string{fmt.Sprint("--node-pods=", slotsPerNode), "--node-cpu=64", "--node-memory=256Gi"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Down()) }()
	var results []result
	for _, n := range o.sizes {
		for _, s := range subjects {
			r, err := crowd{cluster, s, n}.measure(ctx, o)
			if err != nil {
				return fmt.Errorf("%d VPAs, %s: %w\nlogs are in %s", n, s.name, err, cluster.KeepLogs())
			}
			results = append(results, r)
		}
	}
	figures := table(o, results)
	fmt.Print("\n", figures)
	if o.document == "" {
		return nil
	}
	return harness.IntoDocument(o.document, "updater figures", figures)
}

// subject is an updater that is measured.
type subject struct {
	name   string
	binary string // empty: ours, from bin/
}

// chosen returns what to measure; dir is for a program that must be built first.
func chosen(ctx context.Context, o options, dir string) (all []subject, err error) {
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
