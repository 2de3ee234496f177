package updater

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/budgets"
	"loadline.dev/loadline/updater/observe"
	"loadline.dev/loadline/updater/plan"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/rollouts"
	"loadline.dev/loadline/updater/shares"
	"loadline.dev/loadline/updater/snapshot"
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
	config    disruption.Config
	reader    *snapshot.Reader
	policies  *policies.Resolver
	shares    *shares.Sharing
	workloads *rollouts.Reader
	executor  executor
	metrics   *metrics
	// alive reports whether the admission controller works; nil: not asked.
	alive func(ctx context.Context, now time.Time) (bool, error)

	records   *records.Store
	status    policyStatus
	passed    map[string]time.Time // by UID of a pod: when it was last free to change, and was left alone
	announced report.Events
	tripped   map[string]string // by SizingPolicy: the message about its fuse that was reported last
	capacity  snapshot.CapacityReader
	nodes     *plan.StaticCPUNodes
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
	it, err := l.read(ctx, now, watch.Step)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Skipping iteration: failed to read the caches")
		return
	}
	if err := serving.Guard(func() error { l.share(ctx, it.input(), now); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to compute shares: recovered from panic")
		l.sharing.leaving, l.sharing.said = nil, nil
		l.metrics.SharingEnded()
	}
	p, plan := l.planPass(ctx, it, now)
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

// iteration is what the stages of a loop iteration return.
type iteration struct {
	vpas     []snapshot.VPA
	policies []policies.Effective
	pods     snapshot.Pods
	view     plan.View
	division shares.Division
}

func (it *iteration) input() shares.Input {
	return shares.Input{VPAs: it.vpas, Policies: it.policies, Pods: &it.pods}
}

// vpa returns a VPA as it was read; nil: there was none.
func (it *iteration) vpa(name cache.ObjectName) *snapshot.VPA {
	if i := snapshot.Find(it.vpas, name); i >= 0 {
		return &it.vpas[i]
	}
	return nil
}

// policy returns the effective policy of a VPA; nil: the VPA alone decides.
func (it *iteration) policy(name cache.ObjectName) *policies.Effective {
	if i := snapshot.Find(it.vpas, name); i >= 0 && it.policies[i].Policy != nil {
		return &it.policies[i]
	}
	return nil
}

// policyAt is policy of a VPA of the view.
func (it *iteration) policyAt(i int) *policies.Effective {
	if e := &it.policies[it.view.Index[i]]; e.Policy != nil {
		return e
	}
	return nil
}

// mode returns the mode of a VPA, which a SizingPolicy may change.
func (it *iteration) mode(name cache.ObjectName) vpav1.UpdateMode {
	i := snapshot.Find(it.vpas, name)
	if i < 0 {
		return vpav1.UpdateModeOff
	}
	if it.policies[i].Policy != nil {
		switch it.policies[i].Update {
		case disruption.InPlace:
			return vpav1.UpdateModeInPlace
		case disruption.InPlaceOrRecreate:
			return vpav1.UpdateModeInPlaceOrRecreate
		}
	}
	return convert.Mode(it.vpas[i].Object)
}

// read reads the caches.
func (l *Loop) read(ctx context.Context, now time.Time, done func(step string)) (*iteration, error) {
	it := &iteration{}
	var err error
	if it.vpas, err = l.reader.ReadVPAs(ctx); err != nil {
		return nil, err
	}
	it.policies = l.policies.Resolve(ctx, it.vpas, now)
	done("ListVPAs")
	done("ListPods") // takes no time of its own
	if it.pods, err = l.reader.ReadPods(ctx, it.vpas, l.policies.Scopes(it.vpas, it.policies)); err != nil {
		return nil, err
	}
	it.view = plan.NewView(ctx, it.vpas, it.policies, &it.pods, l.reader.PerVPAConfig)
	done("FilterPods")
	return it, nil
}

// pod returns a pod as it is now; nil: it is gone.
func (l *Loop) pod(of disruption.Subject) *corev1.Pod {
	pod, err := l.reader.Pods.Pods(of.Namespace).Get(of.Pod)
	if err != nil || string(pod.UID) != of.UID {
		return nil
	}
	return pod
}

// vpaNow returns a VPA as it is now; nil: it is gone.
func (l *Loop) vpaNow(name cache.ObjectName) *vpav1.VerticalPodAutoscaler {
	vpa, err := l.reader.VPAs.VerticalPodAutoscalers(name.Namespace).Get(name.Name)
	if err != nil {
		return nil
	}
	return vpa
}

// look begins a pass with a plan for all pods that a VPA controls.
func (l *Loop) look(ctx context.Context, now time.Time) (*pass, disruption.Result, error) {
	it, err := l.read(ctx, now, func(string) {})
	if err != nil {
		return nil, disruption.Result{}, err
	}
	p, plan := l.planPass(ctx, it, now)
	return p, plan, nil
}

// planPass begins a pass with a plan for the pods of an iteration.
func (l *Loop) planPass(ctx context.Context, it *iteration, now time.Time) (*pass, disruption.Result) {
	it.division = l.shares.Divide(ctx, it.input(), it.divided(), l.sharing.seldom, now)
	reverts := l.reverts()
	limits := l.limits(ctx, it, now)
	rollouts := l.hold(ctx, it, limits, now)
	plan := l.plan(ctx, &it.view.View, len(it.division.Moves) > 0, now)
	l.state = plan.State
	p := l.begin(ctx, it, plan, now)
	p.rollouts, p.limits, p.counted = rollouts, limits, reverts
	return p, plan
}

// divided returns the view as sharing divides it.
func (it *iteration) divided() shares.View {
	return shares.View{VPAs: it.view.VPAs, Index: it.view.Index, States: it.view.States}
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

// plan plans for all VPAs. Shares always need room. Room for all else is read only if something else is to
// change. Then it plans again.
func (l *Loop) plan(ctx context.Context, view *disruption.View, sharesMove bool, now time.Time) disruption.Result {
	if err := l.nodes.Mark(view, l.pod, now); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list nodes, counting only refused resizes as signs of the static CPU manager policy")
	}
	if growth := l.capacity.Growth; growth != nil && growth.Look(ctx, now) {
		klog.FromContext(ctx).Info("Room for evictions (--eviction-room=auto): " + growth.Explain())
		l.executor.Room(growth.Explain())
		l.skips.Room = growth.Explain()
	}
	if sharesMove {
		l.readCapacity(ctx, view)
	}
	settings := l.config
	settings.IgnoreCapacity = true
	result := l.planned(ctx, *view, settings, now)
	if changes := slices.DeleteFunc(slices.Clone(result.Actions), func(a disruption.Action) bool { return a.SharesOnly() }); len(changes) > 0 {
		l.budgets.Mark(view, changes, now)
		if !sharesMove && !l.config.IgnoreCapacity {
			l.readCapacity(ctx, view)
		}
		result = l.planned(ctx, *view, l.config, now) // its reasons are those that are said
	}
	l.budgets.Planned(result.State, now)
	return result
}

// readCapacity sets what nodes and quotas have left.
func (l *Loop) readCapacity(ctx context.Context, view *disruption.View) {
	var err error
	if view.Room, err = l.capacity.Room(); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read cluster capacity, planning without capacity checks and shares")
	}
}

// planned returns a plan. A panic that is not in the work on one VPA, where the planner stops
// it, makes a pass without changes.
func (l *Loop) planned(ctx context.Context, v disruption.View, c disruption.Config, now time.Time) disruption.Result {
	result := disruption.Result{State: l.state}
	if err := serving.Guard(func() error { result = disruption.Plan(v, l.state, c, now); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "Skipping all changes of this iteration: recovered from a panic of the planner, please report it")
	}
	return result
}
