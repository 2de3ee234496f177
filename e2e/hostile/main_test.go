package hostile

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

// length is the duration of the attacks.
var length = flag.Duration("length", time.Minute, "duration of the attacks")

// iteration is the interval of recommender and updater, shorter than the default so that delays show.
const iteration = 10 * time.Second

// The cluster and the programs under attack.
var (
	cluster  *harness.Cluster
	programs []*harness.Daemon
	webhook  string // host:port
)

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	flag.Parse()
	binary := os.Getenv("LOADLINE_CLUSTER")
	if binary == "" {
		fmt.Println("skipped: attacks need the local control plane; run `make e2e-hostile`, which builds it and sets LOADLINE_CLUSTER")
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "loadline-hostile-")
	if err == nil {
		cluster, err = harness.Start(ctx, harness.Options{Binary: binary, Root: "../..", Dir: filepath.Join(dir, "cluster"), Nodes: 6, Out: os.Stdout})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return cluster.Test(ctx, func() int {
		release, err := startPrograms(ctx)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		code := m.Run()
		for _, d := range programs {
			d.Stop()
		}
		release()
		return code
	})
}

// startPrograms runs the programs with the arguments, the environment and the memory limits of the manifests.
func startPrograms(ctx context.Context) (release func(), err error) {
	var releases []func()
	release = func() {
		for _, f := range releases {
			f()
		}
	}
	webhook, err = harness.FreeAddress()
	if err != nil {
		return release, err
	}
	for _, name := range []string{"admission-controller", "recommender", "updater"} {
		args := []string{"--" + name + "-interval=" + iteration.String()}
		if name == "admission-controller" {
			args = harness.Register(webhook)
		}
		d, err := cluster.ShippedDaemon(ctx, name, name, args...)
		if err != nil {
			return release, err
		}
		if err := d.Start(ctx); err != nil {
			return release, err
		}
		programs = append(programs, d)
		if free, err := d.Confine(); err != nil {
			fmt.Printf("%s: memory is measured, not enforced: %v\n", name, err)
		} else {
			releases = append(releases, free)
		}
	}
	return release, nil
}
