// Package webhook measures the webhook of the admission controller under many VPAs.
//
// It fills a local control plane with Deployments and VPAs, runs the program on
// one processor, with all else on the others, and sends it reviews of new pods at
// a steady rate: each of a pod as the API server has it, over HTTP/1.1 as the API
// server does. `make load` runs it and puts the table into lab/docs/scale.md. It
// fails when reviews take longer than they may.
//
// The reviews do not go through the API server, which could not create so many
// pods on a small machine: what is measured is the webhook, with TLS, and the
// loopback network. Requests that do nothing show what of that is not the webhook.
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

// options are what the command line sets.
type options struct {
	vpas, namespaces int
	rate             int // reviews a second
	duration         time.Duration
	warmUp           time.Duration
	median, slow     time.Duration // what half of the reviews, and 99 of 100, may take
	awake            bool          // processors are kept from sleeping
	document         string        // gets the table; empty: none
	policy           bool          // one SizingPolicy is over all, and VPAs are made for it
	profile          string        // gets a CPU profile of the program; empty: none
}

// Main measures as the arguments say, and ends the program when that fails.
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
	_ = fs.Parse(args) // it exits
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
	gun, err := aim(ctx, cluster, filled)
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
	if err := goFirst(); err != nil {
		return err
	}
	r, err := measure(ctx, daemon, gun, o)
	if err != nil {
		return err
	}
	fmt.Print("\n", r.markdown())
	if o.document != "" {
		if err := r.into(o.document); err != nil {
			return err
		}
	}
	return r.judge()
}

// measure sends requests that do nothing, and then reviews.
func measure(ctx context.Context, daemon *harness.Daemon, gun *gun, o options) (report, error) {
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

// startAlone starts the program on a processor that nothing else of us uses, if
// there are several.
func startAlone(ctx context.Context, cluster *harness.Cluster, o options) (*harness.Daemon, error) {
	// GOMAXPROCS and the processors of the process are one, so that nothing of it
	// runs beside the reviews. The memory limit is that of deploy.
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
	if err := othersAside(os.Getpid()); err != nil {
		return nil, err
	}
	if err := daemon.Start(ctx); err != nil {
		return nil, err
	}
	return daemon, keepOn("0", daemon.PID())
}
