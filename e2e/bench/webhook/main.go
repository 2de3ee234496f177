// Package webhook measures the webhook of the admission controller with many VPAs.
//
// It fills a local control plane with Deployments and VPAs, runs the program on one CPU and
// everything else on the others, and sends reviews of new pods at a steady rate over HTTP/1.1, as
// the API server does. `make load` runs it and writes the table to lab/docs/scale.md. It fails if
// reviews exceed the time limits.
//
// The reviews bypass the API server, which could not create so many pods on a small machine. The
// result includes TLS and the loopback network. Requests that do nothing show their share.
package webhook

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

type options struct {
	vpas, namespaces int
	rate             int // reviews a second
	duration         time.Duration
	warmUp           time.Duration
	median, slow     time.Duration // time limits of the median and the 99th percentile
	awake            bool          // keep CPUs from sleeping
	document         string        // file for the table, empty: none
	policy           bool          // use generated VPAs under one SizingPolicy
	profile          string        // file for a CPU profile of the program, empty: none
}

// Main measures with the given arguments, and exits with an error on failure.
func Main(args []string) {
	fs := flag.NewFlagSet("bench webhook", flag.ExitOnError)
	var o options
	fs.IntVar(&o.vpas, "vpas", 10000, "VPAs, each with a Deployment")
	fs.IntVar(&o.namespaces, "namespaces", 20, "namespaces that hold them")
	fs.IntVar(&o.rate, "rate", 500, "reviews a second")
	fs.DurationVar(&o.duration, "duration", time.Minute, "how long reviews are sent")
	fs.DurationVar(&o.warmUp, "warm-up", 5*time.Second, "how long before that")
	fs.DurationVar(&o.median, "median", 200*time.Microsecond, "what the median may be")
	fs.DurationVar(&o.slow, "slow", 2*time.Millisecond, "what 99 of 100 reviews may take")
	fs.StringVar(&o.document, "document", "", "Markdown file whose figures are replaced by those of this run")
	fs.BoolVar(&o.awake, "awake", true, "keep processors from sleeping: to wake up takes a virtual machine a tenth of a millisecond")
	fs.BoolVar(&o.policy, "policy", false, "one SizingPolicy in mode Auto over all Deployments, VPAs as they are made for it, and a SizingRecord for each")
	fs.StringVar(&o.profile, "profile", "", "file for a CPU profile of the program, which makes it a little slower")
	_ = fs.Parse(args) // exits on errors
	harness.Main("bench webhook", func(ctx context.Context) error {
		return harness.Run(ctx, "load", harness.Options{Nodes: 1}, func(ctx context.Context, cluster *harness.Cluster) error { return run(ctx, cluster, o) })
	})
}

func run(ctx context.Context, cluster *harness.Cluster, o options) error {
	filled, err := fill(ctx, cluster, o)
	if err != nil {
		return err
	}
	daemon, err := startAlone(ctx, cluster, o)
	if err != nil {
		return err
	}
	gun, err := newSender(ctx, cluster, filled)
	if err != nil {
		return err
	}
	if o.awake {
		sleep, err := keepAwake()
		if err != nil {
			return err
		}
		defer sleep()
	}
	if err := raisePriority(); err != nil {
		return err
	}
	r, err := measure(ctx, daemon, gun, o)
	if err != nil {
		return err
	}
	fmt.Print("\n", r.markdown())
	if o.document != "" {
		if err := r.writeTo(o.document); err != nil {
			return err
		}
	}
	return r.judge()
}

// measure sends requests that do nothing, and then reviews.
func measure(ctx context.Context, daemon *harness.Daemon, gun *sender, o options) (report, error) {
	r := report{options: o, size: gun.size()}
	if _, err := gun.fire(ctx, o.rate, o.warmUp, gun.review); err != nil {
		return r, err
	}
	var err error
	if r.nothing, err = gun.fire(ctx, o.rate, o.duration/4, gun.probe); err != nil {
		return r, err
	}
	before, err := spent(ctx, daemon)
	if err != nil {
		return r, err
	}
	profiled := make(chan error, 1)
	go func() { profiled <- profile(ctx, daemon, o) }()
	if r.took, err = gun.fire(ctx, o.rate, o.duration, gun.review); err != nil {
		return r, err
	}
	after, err := spent(ctx, daemon)
	r.used = after.since(before)
	return r, errors.Join(err, <-profiled)
}

// startAlone starts the program on a CPU of its own, if there are several.
func startAlone(ctx context.Context, cluster *harness.Cluster, o options) (*harness.Daemon, error) {
	// GOMAXPROCS matches the single CPU of the process, so that none of its work runs in parallel
	// to the reviews. The memory limit is from deploy.
	for name, value := range map[string]string{"GOMAXPROCS": "1", "GOMEMLIMIT": "450MiB"} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	var args []string
	if o.profile != "" {
		args = []string{"--profiling"}
	}
	daemon, err := cluster.AdmissionController(ctx, args...)
	if err != nil {
		return nil, err
	}
	if err := pinOthers(os.Getpid()); err != nil {
		return nil, err
	}
	if err := daemon.Start(ctx); err != nil {
		return nil, err
	}
	return daemon, pin("0", daemon.PID())
}
