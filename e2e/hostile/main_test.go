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

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/e2e/harness"
)

// length is the duration of the test with all attacks in parallel. Each single attack takes a tenth
// of it, or 15 s.
var length = flag.Duration("length", time.Minute, "duration of all attacks together")

// iteration is the interval of recommender and updater: short enough to show delays, and long
// enough for an iteration while the API server is busy.
const iteration = 30 * time.Second

var (
	cluster  *harness.Cluster
	programs []*harness.Daemon
	webhook  string // host:port
	favored  bool   // API server, etcd and programs have CPU priority over attackers, controllers and nodes
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
		cluster, err = harness.Start(ctx, harness.Options{Binary: binary, Root: "../..", Dir: filepath.Join(dir, "cluster"),
			Nodes: 6, Args: []string{"--node-pods=400", "--audit-objects-of=system:serviceaccounts:" + harness.SystemNamespace}, Out: os.Stdout})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return cluster.Test(ctx, func() int {
		release, err := startPrograms(ctx)
		defer release()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		code := m.Run()
		for _, d := range programs {
			d.Stop()
		}
		return code
	})
}

// startPrograms runs the programs with the arguments, the environment and the memory limits of the
// manifests. One node always has the label of a node autoscaler.
func startPrograms(ctx context.Context) (release func(), err error) {
	var releases []func()
	release = func() {
		for _, f := range releases {
			f()
		}
	}
	if _, err = cluster.Kube.CoreV1().Nodes().Patch(ctx, "node-1", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"karpenter.sh/nodepool":"forged"}}}`), metav1.PatchOptions{}); err != nil {
		return release, err
	}
	if webhook, err = harness.FreeAddress(); err != nil {
		return release, err
	}
	for _, p := range []struct {
		name string
		args []string
	}{
		{name: "admission-controller", args: append(harness.Register(webhook), "--ignored-vpa-object-namespaces="+unseenNamespace)},
		{name: "recommender", args: []string{"--recommender-interval=" + iteration.String()}},
		// Workloads of this cluster are younger than an hour, and a new updater starts below its
		// full pace.
		{name: "updater", args: []string{"--updater-interval=" + iteration.String(), "--sharing-interval=" + iteration.String(), "--sharing-min-age=1s", "--eviction-slow-start=0s"}},
	} {
		d, err := cluster.ShippedDaemon(ctx, p.name, p.name, p.args...)
		if err != nil {
			return release, err
		}
		if free, err := d.Confine(); err != nil {
			fmt.Printf("%s: memory is measured, not enforced: %v\n", p.name, err)
		} else {
			releases = append(releases, free)
		}
		if err := d.Start(ctx); err != nil {
			return release, err
		}
		programs = append(programs, d)
	}
	free, err := cluster.Favor(programs...)
	if err != nil {
		fmt.Printf("the attackers use the processors of the API server: %v\n", err)
		return release, nil
	}
	favored = true
	releases = append(releases, free)
	return release, nil
}
