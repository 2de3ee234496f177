package updater

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

type result struct {
	crowd
	passes   int           // iterations with changes
	loop     time.Duration // their total duration
	changes  time.Duration // from the first to the last observed resize
	cpu      time.Duration // since its start
	peak     int64         // bytes of resident memory
	requests int           // to the API server since its start
}

// measure runs an updater on a crowd until all pods are resized.
func (c crowd) measure(ctx context.Context, o options) (r result, err error) {
	fmt.Printf("%s: %d VPAs, %d pods\n", c.subject.name, c.vpas, c.pods())
	if err := c.fill(ctx); err != nil {
		return r, err
	}
	daemon, account, err := c.prepare(ctx, o)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := daemon.Start(ctx); err != nil {
		return r, err
	}
	defer daemon.Stop()
	if r, err = c.watch(ctx, daemon); err != nil {
		return r, err
	}
	if r.cpu, err = harness.ProcessorTime(daemon.PID()); err != nil {
		return r, err
	}
	if _, r.peak, err = harness.Memory(daemon.PID()); err != nil {
		return r, err
	}
	daemon.Stop()
	fmt.Printf("  all resized after %d passes, %.1f s of work\n", r.passes, r.loop.Seconds())
	if err := c.cluster.Requests(func(q harness.Request) {
		if q.Account == account && q.Complete && q.At.After(began) {
			r.requests++
		}
	}); err != nil {
		return r, err
	}
	return r, errors.Join(c.check(ctx), c.remove(ctx))
}

// prepare prepares a process of the subject with its defaults, but without the settings that would
// make it wait: the budget of each workload, and the heartbeat of an admission controller. It also
// returns the service account.
func (c crowd) prepare(ctx context.Context, o options) (*harness.Daemon, string, error) {
	label := fmt.Sprintf("updater-%s-%d", c.subject.name, c.vpas)
	args := []string{fmt.Sprint("--updater-interval=", o.interval), "--in-place-skip-disruption-budget=true", "--use-admission-controller-status=false"}
	if c.subject.binary == "" {
		d, err := c.cluster.Daemon(ctx, "updater", label, args...)
		return d, "vpa-updater", err
	}
	d, err := c.cluster.Foreign(ctx, c.subject.binary, label, args...)
	return d, "vpa-" + label, err
}

// Metrics that both updaters serve.
const (
	latency = "vpa_updater_execution_latency_seconds"
	resized = "vpa_updater_in_place_updated_pods_total"
	evicted = "vpa_updater_evicted_pods_total"
)

// lastPassTime is the maximum time from the last resize to the end of its iteration.
const lastPassTime = 3 * time.Second

// watch follows the metrics of an updater until the end of the iteration that resized the last pod.
func (c crowd) watch(ctx context.Context, d *harness.Daemon) (result, error) {
	r := result{crowd: c}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	var first, last time.Time
	idle, before := 0, time.Duration(0) // iterations without a change, and their duration
	for {
		metrics, err := d.Metrics(ctx)
		if err != nil {
			return r, err
		}
		passes, spent := int(metrics[latency+`_count{step="total"}`]), time.Duration(metrics[latency+`_sum{step="total"}`]*float64(time.Second))
		done := int(summed(metrics, resized))
		if summed(metrics, evicted) > 0 {
			return r, errors.New("a pod was evicted that could be resized")
		}
		if done == 0 {
			idle, before = passes, spent
		} else if first.IsZero() {
			first = time.Now()
		}
		if done >= c.pods() && last.IsZero() {
			last = time.Now()
		}
		// The last change is counted before its iteration.
		if !last.IsZero() && time.Since(last) > lastPassTime {
			r.passes, r.loop, r.changes = passes-idle, spent-before, last.Sub(first)
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("%d of %d pods are resized: %w", done, c.pods(), ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func summed(metrics map[string]float64, name string) (sum float64) {
	for series, value := range metrics {
		if strings.HasPrefix(series, name+"{") {
			sum += value
		}
	}
	return sum
}

func table(o options, results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "A pass each %s; %d processors.\n\n", o.interval, runtime.NumCPU())
	b.WriteString("| VPAs | pods | updater | loop | passes | first to last resize | requests | processor time | memory at most |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %d | %d | %s | %.1f s | %d | %.1f s | %d | %.1f s | %d MiB |\n",
			r.vpas, r.pods(), r.subject.name, r.loop.Seconds(), r.passes, r.changes.Seconds(), r.requests, r.cpu.Seconds(), r.peak>>20)
	}
	return b.String()
}
