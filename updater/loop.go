// Package updater applies the recommendations of VerticalPodAutoscalers to running pods. It resizes
// them in place, or evicts them so that their controller creates them with the new resources.
//
// newProgram builds every part. Loop.RunOnce makes one iteration: it reads the caches, plans, runs
// the plan and publishes skips, events and metrics.
package updater

import (
	"context"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/plan"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/rollouts"
	"loadline.dev/loadline/updater/shares"
	"loadline.dev/loadline/updater/snapshot"
)

// Loop runs the iterations of the updater.
type Loop struct {
	reader      *snapshot.Reader
	policies    *policies.Resolver
	shareRounds *shares.Rounds
	rollouts    *rollouts.Rollouts
	planner     *plan.Planner
	runner      *actuate.Runner
	metrics     *metrics
	// alive reports whether the admission controller is alive. Nil: not checked.
	alive           func(ctx context.Context, now time.Time) (bool, error)
	stale           func() error // error if caches are too old to disrupt; nil: unchecked
	wasStale        bool
	memoryIncreases *memoryIncreases

	state       disruption.State // input of the next plan
	interrupted bool             // the last run ended before its late writes, to make way for an OOM kill

	announcer   *report.Announcer
	skips       report.Skips
	tally       *tally
	countedVPAs map[cache.ObjectName]bool // VPAs with counters
}

type iteration struct {
	vpas     []snapshot.VPA
	policies []policies.Effective
	pods     snapshot.Pods
	view     snapshot.View
	shares   shares.Result
	holds    *rollouts.Holds
	plan     disruption.Result
	skips    []disruption.Skip
	scores   scores
}

// RunOnce runs one iteration. It ends early when ctx does.
func (l *Loop) RunOnce(ctx context.Context, now time.Time) {
	watch := l.metrics.Stopwatch()
	defer watch.Total()
	if !l.webhookAlive(ctx, now) { // evicted pods would come back unchanged
		return
	}
	l.reportStale(ctx)
	it, err := l.read(ctx, now, watch.Step)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Skipping iteration: failed to read the caches")
		l.skips.Wait("the updater cannot read its caches: " + err.Error())
		return
	}
	l.shareRounds.Run(ctx, it.input(), now) // 5. a sharing round, at most every Config.SharingInterval
	l.decide(ctx, it, now)
	watch.Step("AdmissionInit") // upstream's label for planning
	// 9. resize, evict, write marks. Holds.Admit stores a round before its first change.
	// rollouts.Queue judges and reverts changes on pod events, outside of the loop.
	result := l.run(ctx, it, &it.shares, l, now)
	l.interrupted = result.Interrupted
	it.holds.Save(ctx, it.plan.Actions) // 10. records of workloads without a change, events of rollouts
	watch.Step("EvictPods")
	l.publish(ctx, it, result.Skipped, now) // 11. skips, events, metrics
}

func (l *Loop) read(ctx context.Context, now time.Time, endStep func(step string)) (it *iteration, err error) {
	it = &iteration{}
	if it.vpas, err = l.reader.ReadVPAs(ctx); err != nil { // 1. rules, recommendations, targets
		return nil, err
	}
	// 2. effective policies: they apply floors, HPAs and limits to recommendations and rules.
	it.policies = l.policies.Resolve(ctx, it.vpas, now)
	endStep("ListVPAs")
	endStep("ListPods")                                                                                      // upstream step, takes no time here
	if it.pods, err = l.reader.ReadPods(ctx, it.vpas, l.policies.Scopes(it.vpas, it.policies)); err != nil { // 3. pods by VPA
		return nil, err
	}
	it.view = plan.NewView(ctx, it.vpas, it.policies, &it.pods, l.reader.PerVPAConfig) // 4. targets of all pods
	endStep("FilterPods")
	return it, nil
}

func (l *Loop) decide(ctx context.Context, it *iteration, now time.Time) {
	it.shares = l.shareRounds.SetShares(ctx, it.input(), &it.view, now) // 6. Pod.Share in the view, and its marks
	it.holds = l.rollouts.Hold(ctx, &it.view, it.policies, now)         // 7. Pod.Held in the view: pods that a rollout holds
	l.findNodeAutoscaler(ctx, now)
	// 8. actions and skips, by disruption.Plan. Capacity is read only if something may change.
	it.plan = l.planner.Plan(ctx, &it.view.View, l.state, len(it.shares.Moves) > 0, now)
	l.state = it.plan.State
	it.logProblems(ctx)
}

func (l *Loop) run(ctx context.Context, it *iteration, s *shares.Result, interrupter actuate.Interrupter, now time.Time) actuate.Done {
	it.scores = l.newScores(it)
	result := l.runner.Run(ctx, &actuate.Plan{Result: it.plan, VPAs: it.vpas, Holds: it.holds, Shares: s, Interrupter: interrupter}, now)
	for i := range result.Attempts {
		a := &result.Attempts[i]
		if err := serving.Guard(func() error { l.record(it, a, now); return nil }); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to record a change: recovered from panic", "pod", klog.KRef(a.Namespace, a.Pod), "vpa", a.VPA)
		}
	}
	return result
}

func (it *iteration) input() shares.Input {
	return shares.Input{VPAs: it.vpas, Policies: it.policies, Pods: &it.pods}
}

func (l *Loop) vpa(name cache.ObjectName) *vpav1.VerticalPodAutoscaler {
	vpa, err := l.reader.VPAs.VerticalPodAutoscalers(name.Namespace).Get(name.Name)
	if err != nil {
		return nil
	}
	return vpa
}

func (l *Loop) reportStale(ctx context.Context) {
	if l.stale == nil {
		return
	}
	err := l.stale()
	switch log := klog.FromContext(ctx); {
	case err != nil && !l.wasStale:
		log.Error(err, "Evictions and restarts wait until all caches are up to date", "maxAge", client.MaxCacheAge)
	case err == nil && l.wasStale:
		log.Info("Caches are up to date, evictions and restarts continue")
	}
	l.wasStale = err != nil
}

func (l *Loop) webhookAlive(ctx context.Context, now time.Time) bool {
	if l.alive == nil {
		return true
	}
	alive, err := l.alive(ctx, now)
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Skipping iteration: failed to read the status Lease of the admission controller, evicted pods might come back unchanged. Start it, or set --use-admission-controller-status=false")
		l.metrics.HeartbeatMissing("error")
	case !alive:
		klog.FromContext(ctx).Info("Skipping iteration: the status Lease of the admission controller is stale, evicted pods might come back unchanged")
		l.metrics.HeartbeatMissing("invalid")
	}
	if err != nil || !alive {
		l.skips.Wait("the status Lease of the admission controller is missing or stale, evicted pods might come back unchanged")
	}
	return err == nil && alive
}

// findNodeAutoscaler logs changes. Without one, evictions wait for free capacity.
func (l *Loop) findNodeAutoscaler(ctx context.Context, now time.Time) {
	if autoscaler := l.planner.Capacity.NodeAutoscaler; autoscaler != nil && autoscaler.Refresh(ctx, now) {
		l.skips.Room = autoscaler.Explain()
		klog.FromContext(ctx).Info("Capacity check of evictions (--eviction-room=auto): " + l.skips.Room)
		l.runner.Executor.ReportCapacity(l.skips.Room)
	}
}
