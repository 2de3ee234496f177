// Command demo demonstrates Loadline on a local control plane: pods that request too much or too
// little are resized while they run.
//
// Three workloads play recorded usage: one requests far more than it needs, one requests too little
// memory and is OOM-killed, and one has spiky CPU usage. In a second act a SizingPolicy applies
// changes to a canary of each of two workloads: one is promoted, and the other is harmed by its
// change, which is reverted. The demo shows the actions of the programs as a live table on a
// terminal and as plain lines elsewhere, and ends with a summary. It verifies its own claims. It
// fails if a pod is replaced or restarted that could have been resized, if a request ends outside
// the bounds of its recommendation, or if needed memory is not restored within seconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"loadline.dev/loadline/e2e/harness"
)

func main() {
	keep := flag.Bool("keep", false, "leave the control plane and the programs running until ctrl-C")
	timeout := flag.Duration("timeout", 5*time.Minute, "time limit for resizing the workloads")
	flag.Parse()
	harness.Main("demo", func(ctx context.Context) error {
		return harness.Run(ctx, "demo", harness.Options{Nodes: 3}, func(ctx context.Context, cluster *harness.Cluster) error { return run(ctx, cluster, *keep, *timeout) })
	})
}

func run(ctx context.Context, cluster *harness.Cluster, keep bool, timeout time.Duration) error {
	if err := startPrograms(ctx, cluster); err != nil {
		return err
	}
	if err := show(ctx, cluster, timeout); err != nil {
		return err
	}
	if keep {
		fmt.Printf("\nLeft running; ctrl-C ends it. Play with it:\n  export KUBECONFIG=%s\n  kubectl -n %s get vpa,pods   (or: %s kubectl ...)\n  kubectl -n %s get sizings,pods\n",
			cluster.Kubeconfig(), namespace, cluster.Binary, policyNamespace)
		<-ctx.Done()
	}
	return nil
}

// startPrograms runs the three programs. The flags only speed up time: short iterations, and no
// wait of 12 hours before a pod within its bounds is improved. Without that wait, the threshold
// keeps the updater from acting while the first estimates move.
func startPrograms(ctx context.Context, cluster *harness.Cluster) error {
	admission, err := cluster.AdmissionController(ctx)
	if err != nil {
		return err
	}
	recommender, err := cluster.Daemon(ctx, "recommender", "recommender", "--recommender-interval=5s")
	if err != nil {
		return err
	}
	updater, err := cluster.Daemon(ctx, "updater", "updater",
		"--updater-interval=5s", "--in-recommendation-bounds-eviction-lifetime-threshold=1m", "--pod-update-threshold=0.25")
	if err != nil {
		return err
	}
	for _, d := range []*harness.Daemon{admission, recommender, updater} {
		fmt.Printf("start %s\n", d.Name)
		if err := d.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// show creates the workloads, shows their changes until they are settled, and checks the claims.
func show(ctx context.Context, cluster *harness.Cluster, timeout time.Duration) error {
	if err := createWorkloads(ctx, cluster); err != nil {
		return err
	}
	if err := createUnderPolicy(ctx, cluster); err != nil {
		return err
	}
	fmt.Println()
	before, err := awaitPods(ctx, cluster)
	if err != nil {
		return err
	}
	var view view = &lines{out: os.Stdout}
	if term.IsTerminal(int(os.Stdout.Fd())) {
		view = &table{out: os.Stdout}
	}
	second := &secondAct{cluster: cluster}
	after, err := watch(ctx, cluster, view, second, timeout)
	if err != nil {
		return err
	}
	summarise(os.Stdout, before, after)
	records, err := cluster.KubectlOutput(ctx, "-n", policyNamespace, "get", "sizings", "-o", "wide")
	if err != nil {
		return err
	}
	fmt.Printf("\n%s had its memory again at most %s after its container was killed\nkubectl -n %s get sizings -o wide\n%s", hurt, upward(second.restoreTime), policyNamespace, records)
	return errors.Join(check(before, after), second.check(before, after))
}
