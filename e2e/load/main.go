package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

// options are what the command line sets.
type options struct {
	vpas, namespaces int
	rate             int // reviews a second
	duration         time.Duration
	warmUp           time.Duration
	median, slow     time.Duration // that half and 99 of 100 reviews may take
	document         string        // gets the table; empty: none
}

func main() {
	var o options
	flag.IntVar(&o.vpas, "vpas", 10000, "VPAs, each with a Deployment")
	flag.IntVar(&o.namespaces, "namespaces", 20, "namespaces that hold them")
	flag.IntVar(&o.rate, "rate", 500, "reviews a second")
	flag.DurationVar(&o.duration, "duration", time.Minute, "how long reviews are sent")
	flag.DurationVar(&o.warmUp, "warm-up", 5*time.Second, "how long before that")
	flag.DurationVar(&o.median, "median", 200*time.Microsecond, "what the median may be")
	flag.DurationVar(&o.slow, "slow", 2*time.Millisecond, "what 99 of 100 reviews may take")
	flag.StringVar(&o.document, "document", "", "Markdown file whose figures are replaced by those of this run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	binary := os.Getenv("LOADLINE_CLUSTER")
	if binary == "" {
		return errors.New("the variable LOADLINE_CLUSTER must name the program of the local control plane; `make load` builds it and sets it")
	}
	dir, err := os.MkdirTemp("", "loadline-load-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cluster, err := harness.Start(ctx, harness.Options{Binary: binary, Root: "..", Dir: filepath.Join(dir, "cluster"), Nodes: 1, Out: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Down()) }()
	filled, err := fill(ctx, cluster, o)
	if err != nil {
		return fmt.Errorf("%w\nlogs are in %s", err, cluster.KeepLogs())
	}
	// GOMAXPROCS and the processors of the process are one, so that nothing of it
	// runs beside the reviews.
	if err := os.Setenv("GOMAXPROCS", "1"); err != nil {
		return err
	}
	daemon, err := cluster.AdmissionController(ctx, "--v=1")
	if err != nil {
		return err
	}
	if err := daemon.Start(ctx); err != nil {
		return fmt.Errorf("%w\nlogs are in %s", err, cluster.KeepLogs())
	}
	if err := onOneProcessor(daemon.PID()); err != nil {
		return err
	}
	gun, err := aim(ctx, cluster, filled)
	if err != nil {
		return err
	}
	if _, err := gun.fire(ctx, o.rate, o.warmUp); err != nil {
		return err
	}
	before, err := spent(ctx, daemon)
	if err != nil {
		return err
	}
	took, err := gun.fire(ctx, o.rate, o.duration)
	if err != nil {
		return err
	}
	after, err := spent(ctx, daemon)
	if err != nil {
		return err
	}
	r := report{options: o, took: took, used: after.since(before), size: gun.size()}
	fmt.Print("\n", r.markdown())
	if o.document != "" {
		if err := r.into(o.document); err != nil {
			return err
		}
	}
	return r.judge()
}
