package updater

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/budgets"
	"loadline.dev/loadline/updater/observe"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/view"
)

// executor carries changes out: actuate.Cluster, or actuate.Rehearsal in a dry
// run.
type executor interface {
	// Resize patches the resize subresource of a pod. If that restarts a container it asks for
	// an eviction in a dry run first, but for an OOM resize. It returns what it noted on the
	// pod, if the change is to be observed.
	Resize(ctx context.Context, c actuate.Change) (rollout.Change, error)
	// Evict evicts a pod.
	Evict(ctx context.Context, c actuate.Change) error
	// Boost gives a young pod the startup boost that the webhook did not give it.
	Boost(ctx context.Context, c actuate.Change) error
	// Unboost resizes a pod to what it gets without its startup boost.
	Unboost(ctx context.Context, c actuate.Change) error
	// RecordBackoff notes on a pod how long its workload is left alone.
	RecordBackoff(ctx context.Context, pod *corev1.Pod, p disruption.Backoff) error
	// NotResizable says on a pod that its node cannot grant what is recommended.
	NotResizable(ctx context.Context, pod *corev1.Pod)
	// MarkShare notes on a pod what it shares, and whether that did harm.
	MarkShare(ctx context.Context, pod *corev1.Pod, m sharing.Mark) error
	// RemoveShare notes on a pod that it shares no more.
	RemoveShare(ctx context.Context, pod *corev1.Pod) error
	// LeftAlone is told the pods that a pass leaves alone.
	LeftAlone(skipped []disruption.Skip)
	// Room is told whether evictions wait for room on nodes, and why.
	Room(explained string)
	// Event puts an event on a VPA or a SizingPolicy.
	Event(about actuate.Object, reason, message string, details actuate.Details)

	observe.Executor
}

// Loop makes passes. newProgram builds it.
type Loop struct {
	config   disruption.Config
	reader   *view.Reader
	executor executor
	metrics  *metrics
	// alive reports whether the admission controller works; nil: not asked.
	alive func(ctx context.Context, now time.Time) (bool, error)

	records   *records.Store
	status    policyStatus
	passed    map[string]time.Time // by UID of a pod: when it was last free to change, and was left alone
	announced report.Events
	tripped   map[string]string // by SizingPolicy: the message about its fuse that was reported last
	capacity  view.CapacityReader
	nodes     *view.StaticCPUNodes
	budgets   *budgets.Budgets
	limiter   *disruption.RateLimiter // nil: no pace
	state     disruption.State
	skips     report.Skips
	tally     *tally
	sharing   sharingRounds
	known     map[cache.ObjectName]bool // VPAs that have counters
	slow      map[string]time.Time      // by namespace: when a write took long
	unserved  map[string]bool           // namespaces with late writes that the last pass left
	// killed reports whether an early pass has a pod to protect. Nil: never.
	killed      func(ctx context.Context) bool
	interrupted bool         // the last pass gave way to an early one, and left late writes
	stale       func() error // an error while the caches are too old for a disruption; nil: not checked
	wasStale    bool
	// cursor is the VPA that was served last when a pass ended early; the next
	// pass begins behind it, so that none waits for ever.
	cursor cache.ObjectName
	// lastStored is the namespace of the last record that was written without a change of a pod.
	lastStored string
}

// RunOnce makes one pass: it looks at all pods that a VPA controls and changes
// those that the plan names. It ends early when ctx does.
func (l *Loop) RunOnce(ctx context.Context, now time.Time) {
	watch := l.metrics.Stopwatch()
	defer watch.Total()
	if !l.admitted(ctx, now) {
		return
	}
	l.reportStale(ctx)
	snapshot, err := l.reader.Read(ctx, now, watch.Step)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Pass skipped: the caches cannot be read")
		return
	}
	if err := serving.Guard(func() error { l.share(ctx, now); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "A defect of the updater: please report it. It is not known what pods would share")
		l.sharing.leaving, l.sharing.said = nil, nil
		l.metrics.SharingEnded()
	}
	p, plan := l.planPass(ctx, snapshot, now)
	p.yields = true
	watch.Step("AdmissionInit") // the label that the reference has for planning
	p.markShares(ctx)
	p.carryOut(ctx, plan)
	p.remember(ctx, plan)
	p.reportFuses(ctx)
	watch.Step("EvictPods")
	p.sayWhyLeftAlone(ctx)
	p.reportTally()
	p.publishGauges()
}

// look begins a pass with a plan for all pods that a VPA controls.
func (l *Loop) look(ctx context.Context, now time.Time, done view.Step) (*pass, disruption.Result, error) {
	snapshot, err := l.reader.Read(ctx, now, done)
	if err != nil {
		return nil, disruption.Result{}, err
	}
	p, plan := l.planPass(ctx, snapshot, now)
	return p, plan, nil
}

// planPass begins a pass with a plan for the pods of a snapshot.
func (l *Loop) planPass(ctx context.Context, snapshot *view.Snapshot, now time.Time) (*pass, disruption.Result) {
	division := l.reader.Divide(ctx, snapshot, l.sharing.seldom, now)
	moves := l.planReverts(ctx, division, now)
	reverts := l.reverts()
	limits := l.limits(ctx, now)
	rollouts := l.hold(ctx, snapshot, limits, now)
	plan := l.plan(ctx, snapshot, &moves, now)
	l.state = plan.State
	for i := range plan.Skipped {
		if s := &plan.Skipped[i]; (s.Reason == reason.Unchanged || s.Reason == reason.NoRecommendation) && snapshot.HasShare(s.UID) {
			s.Reason = reason.HasShare
		}
	}
	p := l.begin(ctx, snapshot, plan, now)
	p.rollouts, p.limits, p.counted = rollouts, limits, reverts
	p.shares = l.moveShares(ctx, p, division, plan, moves)
	return p, plan
}

// reportStale logs when disruptions begin to wait for a cache, and when they go on.
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

// admitted reports whether the admission controller is there to give evicted pods
// their new sizes.
func (l *Loop) admitted(ctx context.Context, now time.Time) bool {
	if l.alive == nil {
		return true
	}
	alive, err := l.alive(ctx, now)
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Pass skipped: it is not known whether the admission controller works, so evicted pods might come back unchanged. Start it, or set --use-admission-controller-status=false")
		l.metrics.NoHeartbeat("error")
	case !alive:
		klog.FromContext(ctx).Info("Pass skipped: the admission controller has not shown for a while that it works, so evicted pods might come back unchanged")
		l.metrics.NoHeartbeat("invalid")
	}
	return err == nil && alive
}

// plan plans for all VPAs. Only if something is to be done it looks whether there
// is room for it, beside what is taken back of shares, and plans again.
func (l *Loop) plan(ctx context.Context, s *view.Snapshot, reverts *shareMoves, now time.Time) disruption.Result {
	if err := l.nodes.Mark(&s.View, s.Pod, now); err != nil {
		klog.FromContext(ctx).Error(err, "It is not known which nodes have the static CPU manager policy")
	}
	if growth := l.capacity.Growth; growth != nil && growth.Look(ctx, now) {
		klog.FromContext(ctx).Info("Room for evictions (--eviction-room=auto): " + growth.Explain())
		l.executor.Room(growth.Explain())
		l.skips.Room = growth.Explain()
	}
	result := l.planned(ctx, s.View, now)
	if len(result.Actions) > 0 {
		l.budgets.Mark(&s.View, result.Actions, now)
		room, err := l.capacity.Room()
		if err != nil {
			klog.FromContext(ctx).Error(err, "It is not known whether there is room for changes")
		}
		keep(room, reverts.vpas, reverts.planned.Actions)
		s.View.Room = room // the reasons of the second plan are those that are said
		result = l.planned(ctx, s.View, now)
	}
	l.budgets.Planned(result.State, now)
	return result
}

// planned returns a plan. A panic that is not in the work on one VPA, where the planner stops
// it, makes a pass without changes.
func (l *Loop) planned(ctx context.Context, v disruption.View, now time.Time) disruption.Result {
	result := disruption.Result{State: l.state}
	if err := serving.Guard(func() error { result = disruption.Plan(v, l.state, l.config, now); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "A defect of the updater: please report it. This pass changes nothing")
	}
	return result
}
