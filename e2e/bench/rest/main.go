// Package rest measures the cost of the idle webhook of the admission controller, compared with the
// reference VPA.
//
// Both programs run on one local control plane at the same time, so that a busy machine affects
// both. Only the webhook of Loadline is registered, but neither receives a review.
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

type options struct {
	rounds           int
	duration, settle time.Duration
	document         string // file for the table, empty: none
}

// Main measures with the given arguments, and exits with an error on failure.
func Main(args []string) {
	fs := flag.NewFlagSet("bench rest", flag.ExitOnError)
	var o options
	fs.IntVar(&o.rounds, "rounds", 5, "how often it is measured")
	fs.DurationVar(&o.duration, "duration", 3*time.Minute, "how long a round is")
	fs.DurationVar(&o.settle, "settle", 3*time.Minute, "how long the programs run before the first")
	fs.StringVar(&o.document, "document", "", "Markdown file whose figures are replaced by those of this run")
	_ = fs.Parse(args) // exits on errors
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
	table := fmt.Sprintf("Processor time in %s, and how often threads were woken, both at the same time.\n\n"+
		"| round | loadline | reference | ratio | loadline, woken | reference, woken | ratio |\n|---|---|---|---|---|---|---|\n", o.duration)
	var all [2]cost
	for round := range o.rounds {
		var before, used [2]cost
		for i, p := range programs {
			if before[i], err = costOf(p.PID()); err != nil {
				return err
			}
		}
		if err := wait(ctx, o.duration); err != nil {
			return err
		}
		for i, p := range programs {
			after, err := costOf(p.PID())
			if err != nil {
				return err
			}
			used[i] = cost{after.time - before[i].time, after.woken - before[i].woken}
			all[i].time, all[i].woken = all[i].time+used[i].time, all[i].woken+used[i].woken
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

// cost is the cost of a process. The number of wakeups measures the same as the CPU time, but
// depends less on other load of the machine.
type cost struct {
	time  time.Duration // CPU time
	woken int           // wakeups of its threads
}

// row formats the cost of both programs, and the ratio of Loadline to the reference.
func row(round string, of [2]cost) string {
	return fmt.Sprintf("| %s | %d ms | %d ms | %.2f | %d | %d | %.2f |\n", round, of[0].time.Milliseconds(), of[1].time.Milliseconds(),
		of[0].time.Seconds()/of[1].time.Seconds(), of[0].woken, of[1].woken, float64(of[0].woken)/float64(of[1].woken))
}

// start starts the programs of Loadline and the reference, which uses Loadline's certificate.
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
	// With a common Lease, each program would find the other's heartbeat and read it again.
	if programs[1], err = cluster.ReferenceAdmissionController(ctx, binary, "reference-admission-controller",
		"--register-webhook=false", "--status-lease-name=reference-admission-controller"); err != nil {
		return programs, err
	}
	return programs, programs[1].Start(ctx)
}

// costOf sums the cost of a process over its threads: their time is in nanoseconds, and the time of
// the process only in hundredths of a second.
func costOf(pid int) (c cost, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return c, err
	}
	for _, thread := range threads {
		ran, err := number(filepath.Join(thread, "schedstat"), "")
		if err != nil {
			return c, err
		}
		woken, err := number(filepath.Join(thread, "status"), "\nvoluntary_ctxt_switches:")
		if err != nil {
			return c, err
		}
		c.time, c.woken = c.time+time.Duration(ran), c.woken+woken
	}
	return c, nil
}

// number returns the number that follows a text in a file.
func number(file, after string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(text), after)
	words := strings.Fields(rest)
	if !found || len(words) == 0 {
		return 0, fmt.Errorf("read %s: there is no number after %q", file, after)
	}
	n, err := strconv.Atoi(words[0])
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return n, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
