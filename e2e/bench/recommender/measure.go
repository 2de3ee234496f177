package recommender

import (
	"context"
	"fmt"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

// steps are the steps of an iteration in order, with the names in both recommenders.
var steps = []string{"LoadVPAs", "LoadPods", "LoadMetrics", "DeleteRemovedPods", "UpdateVPAs", "MaintainCheckpoints", "GarbageCollect", total}

const total = "total"

type result struct {
	subject     subject
	recommended time.Duration            // from its start until every VPA has a recommendation
	mean, worst map[string]time.Duration // of each step
	calls       calls                    // of all measured iterations
	cpu         time.Duration            // of all measured iterations
	rss, peak   int64                    // bytes, at the end and at the peak
	load        float64                  // of the machine, mean at the ends of the iterations
}

// measure runs a recommender with new VPAs until the measured iterations are over.
func measure(ctx context.Context, cluster *harness.Cluster, o options, s subject) (result, error) {
	r := result{subject: s, mean: map[string]time.Duration{}, worst: map[string]time.Duration{}}
	fmt.Printf("measure %s: new VPAs with a history of %s\n", s.name, o.history)
	if err := o.serve(ctx, cluster, o); err != nil {
		return r, err
	}
	daemon, account, err := s.prepare(ctx, cluster, o)
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := daemon.Start(ctx); err != nil {
		return r, err
	}
	defer daemon.Stop()
	if err := await(ctx, "VPAs with a recommendation", o.vpas, func() (int, error) { return recommended(ctx, cluster) }); err != nil {
		return r, err
	}
	r.recommended = time.Since(start)
	fmt.Printf("  %s to warm up, then %d passes that count\n", o.warmUp, o.passes)
	first, err := observe(ctx, daemon)
	if err != nil {
		return r, err
	}
	for warm := time.Now().Add(o.warmUp); time.Now().Before(warm); {
		if first, err = next(ctx, daemon, first); err != nil {
			return r, err
		}
	}
	last := first
	for range o.passes {
		now, err := next(ctx, daemon, last)
		if err != nil {
			return r, err
		}
		for _, step := range steps {
			r.worst[step] = max(r.worst[step], now.spent(step)-last.spent(step))
		}
		r.load += now.load / float64(o.passes)
		last = now
	}
	for _, step := range steps {
		r.mean[step] = (last.spent(step) - first.spent(step)) / time.Duration(last.passes()-first.passes())
	}
	r.cpu, r.rss, r.peak = last.cpu-first.cpu, last.rss, last.peak
	r.calls, err = countCalls(cluster, account, first.at, last.at)
	return r, err
}

// next waits for the end of the iteration after the last observed one.
func next(ctx context.Context, d *harness.Daemon, last observation) (observation, error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for {
		now, err := observe(ctx, d)
		if err != nil {
			return now, err
		}
		if now.passes() > last.passes() {
			fmt.Printf("  pass %d: %.2f s\n", now.passes(), (now.spent(total) - last.spent(total)).Seconds())
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, fmt.Errorf("wait for the end of pass %d: %w", last.passes()+1, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
