// Package rest measures what the webhook of the admission controller costs while nobody creates
// pods, beside that of the reference.
//
// Both programs run on one local control plane, at the same time, so that a busy machine is busy
// for both. Only ours is registered: the reference's never gets a review either.
package rest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/hack/document"
)

// options are what the command line sets.
type options struct {
	rounds           int
	duration, settle time.Duration
	document         string // gets the table; empty: none
}

// Main measures as the arguments say, and ends the program when that fails.
func Main(args []string) {
	fs := flag.NewFlagSet("bench rest", flag.ExitOnError)
	var o options
	fs.IntVar(&o.rounds, "rounds", 5, "how often it is measured")
	fs.DurationVar(&o.duration, "duration", 3*time.Minute, "how long a round is")
	fs.DurationVar(&o.settle, "settle", 3*time.Minute, "how long the programs run before the first")
	fs.StringVar(&o.document, "document", "", "Markdown file whose figures are replaced by those of this run")
	_ = fs.Parse(args) // it exits
	harness.Main("bench rest", func(ctx context.Context) error {
		return harness.Run(ctx, "rest", harness.Options{Nodes: 1}, func(ctx context.Context, cluster *harness.Cluster) error { return run(ctx, cluster, o) })
	})
}

func run(ctx context.Context, cluster *harness.Cluster, o options) error {
	programs, err := start(ctx, cluster)
	if err != nil {
		return err
	}
	if err := wait(ctx, o.settle); err != nil {
		return err
	}
	table := fmt.Sprintf("Processor time in %s, both at the same time.\n\n| round | loadline | reference | ratio |\n|---|---|---|---|\n", o.duration)
	var all [2]time.Duration
	for round := range o.rounds {
		var before, used [2]time.Duration
		for i, p := range programs {
			if before[i], err = processor(p.PID()); err != nil {
				return err
			}
		}
		if err := wait(ctx, o.duration); err != nil {
			return err
		}
		for i, p := range programs {
			after, err := processor(p.PID())
			if err != nil {
				return err
			}
			used[i] = after - before[i]
			all[i] += used[i]
		}
		table += row(strconv.Itoa(round+1), used)
	}
	table += row("all", all)
	fmt.Print("\n", table)
	if o.document == "" {
		return nil
	}
	return document.Fill(o.document, "webhook at rest", table)
}

// row is what both programs used, and by how much ours did more.
func row(round string, used [2]time.Duration) string {
	return fmt.Sprintf("| %s | %d ms | %d ms | %.2f |\n", round, used[0].Milliseconds(), used[1].Milliseconds(), used[0].Seconds()/used[1].Seconds())
}

// start starts our program and that of the reference, which uses our certificate.
func start(ctx context.Context, cluster *harness.Cluster) (programs [2]*harness.Daemon, err error) {
	binary := filepath.Join(cluster.Dir, "reference-admission-controller")
	fmt.Println("build the admission controller of", harness.ReferenceModule)
	if err := harness.BuildReference(ctx, "./pkg/admission-controller", binary); err != nil {
		return programs, fmt.Errorf("build %s: %w", harness.ReferenceModule, err)
	}
	if programs[0], err = cluster.AdmissionController(ctx); err != nil {
		return programs, err
	}
	if err := programs[0].Start(ctx); err != nil {
		return programs, err
	}
	// With the Lease of ours each would find the other's heartbeat and read it again.
	if programs[1], err = cluster.ReferenceAdmissionController(ctx, binary, "reference-admission-controller",
		"--register-webhook=false", "--status-lease-name=reference-admission-controller"); err != nil {
		return programs, err
	}
	return programs, programs[1].Start(ctx)
}

// processor returns the processor time of a process, from its threads: they are counted in
// nanoseconds, and the process itself only in hundredths of a second.
func processor(pid int) (used time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			return 0, err
		}
		ran, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", thread, err)
		}
		used += time.Duration(n)
	}
	return used, nil
}

// wait waits, or ends with the context.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
