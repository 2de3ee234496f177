package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

// quietTime is the time without changes after which the workloads count as settled.
const quietTime = 30 * time.Second

// watch takes a snapshot once a second until every workload is settled and the second act is over,
// and returns the last snapshot. The second act begins after the first resize of each workload of
// the first act, while the demo checks that they stay unchanged.
func watch(ctx context.Context, cluster *harness.Cluster, v view, second *secondAct, timeout time.Duration) (snapshot, error) {
	started := time.Now()
	last, err := readSnapshot(ctx, cluster)
	if err != nil {
		return last, err
	}
	quietSince := started
	for {
		select {
		case <-ctx.Done():
			return last, errors.New("interrupted")
		case <-time.After(time.Second):
		}
		now, err := readSnapshot(ctx, cluster)
		if err != nil {
			return last, err
		}
		happened := changes(last, now, started)
		if len(happened) > 0 {
			quietSince = now.at
		}
		did, err := second.step(ctx, now, started)
		if err != nil {
			return now, err
		}
		v.update(now, slices.Concat(happened, rolloutChanges(last, now, started), did))
		last = now
		open := cmp.Or(unfinished(now), second.pendingStep(now))
		if open == "" && now.at.Sub(quietSince) > quietTime {
			return now, nil
		}
		if now.at.Sub(started) > timeout {
			return now, fmt.Errorf("not put right within %s: %s", timeout, open)
		}
	}
}

func unfinished(s snapshot) string {
	for _, p := range s.pods {
		b, ok := s.vpas[p.workload]
		switch {
		case !ok:
			return p.workload + " has no recommendation"
		case !p.resized:
			return p.name + " was not resized"
		case !within(p.request, b):
			return p.name + " requests " + pair(p.request) + ", outside its bounds"
		case p.usage != nil && p.limit.memory > 0 && p.usage.memory > p.limit.memory:
			return p.name + " uses more memory than its limit"
		}
	}
	return ""
}

func within(request amounts, b bounds) bool {
	return request.cpu >= b.lower.cpu && request.cpu <= b.upper.cpu &&
		request.memory >= b.lower.memory && request.memory <= b.upper.memory
}

// check returns an error if a claim of the demo is false.
func check(before, after snapshot) error {
	var broken []error
	originals := map[string]bool{}
	for _, p := range before.pods {
		originals[string(p.uid)] = true
	}
	for _, p := range after.pods {
		if !originals[string(p.uid)] {
			broken = append(broken, fmt.Errorf("%s replaced a pod that could have been resized", p.name))
		}
		if p.restarts > 0 && !p.oomKilled {
			broken = append(broken, fmt.Errorf("%s was restarted %d times, and not by an OOM kill", p.name, p.restarts))
		}
		if !within(p.request, after.vpas[p.workload]) {
			broken = append(broken, fmt.Errorf("%s requests %s, outside the bounds %+v", p.name, pair(p.request), after.vpas[p.workload]))
		}
	}
	return errors.Join(broken...)
}

func summarise(out io.Writer, before, after snapshot) {
	fmt.Fprintf(out, "\n%-8s %24s %24s %22s %9s %10s\n", "", "CPU requested (cores)", "memory requested (GiB)", "memory limit (GiB)", "OOM kills", "pods moved")
	for _, w := range workloads() {
		old, now := total(before, w.Name), total(after, w.Name)
		fmt.Fprintf(out, "%-8s %24s %24s %22s %9d %10d\n", w.Name,
			change(cores(old.request.cpu), cores(now.request.cpu)),
			change(gib(old.request.memory), gib(now.request.memory)),
			limitChange(old.limit.memory, now.limit.memory), now.restarts, moved(before, after, w.Name))
	}
	old, now := total(before, ""), total(after, "")
	fmt.Fprintf(out, "%-8s %24s %24s\n", "all", change(cores(old.request.cpu), cores(now.request.cpu)), change(gib(old.request.memory), gib(now.request.memory)))
}

// total returns the sum over the pods of one workload, or of all with an empty name.
func total(s snapshot, workload string) (sum podState) {
	for _, p := range s.pods {
		if workload == "" || p.workload == workload {
			sum.request.cpu += p.request.cpu
			sum.request.memory += p.request.memory
			sum.limit.memory += p.limit.memory
			sum.restarts += p.restarts
		}
	}
	return sum
}

func moved(before, after snapshot, workload string) (n int) {
	there := map[string]bool{}
	for _, p := range after.pods {
		there[string(p.uid)] = true
	}
	for _, p := range before.pods {
		if p.workload == workload && !there[string(p.uid)] {
			n++
		}
	}
	return n
}

func cores(milli int64) float64 { return float64(milli) / 1000 }
func gib(bytes int64) float64   { return float64(bytes) / (1 << 30) }

func change(from, to float64) string { return fmt.Sprintf("%.2f -> %.2f", from, to) }

func limitChange(from, to int64) string {
	if from == 0 {
		return "none"
	}
	return change(gib(from), gib(to))
}
