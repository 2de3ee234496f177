package actuate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/rollouts"
	"loadline.dev/loadline/updater/shares"
	"loadline.dev/loadline/updater/snapshot"
)

// Executor changes pods: Cluster, or DryRun.
type Executor interface {
	// Resize patches the resize subresource of a pod. If that restarts a container, it requests an
	// eviction in a dry run first, except for an OOM resize. It notes an observed change on the pod
	// before, and removes the note if the resize is refused. It returns the note in both cases.
	Resize(ctx context.Context, c Change) (rollout.Change, error)
	Evict(ctx context.Context, c Change) error
	AddBoost(ctx context.Context, c Change) error
	RemoveBoost(ctx context.Context, c Change) error
	RecordBackoff(ctx context.Context, pod *corev1.Pod, p disruption.Backoff) error
	NotResizable(ctx context.Context, pod *corev1.Pod)
	MarkShare(ctx context.Context, pod *corev1.Pod, m sharing.Mark) error
	RemoveShare(ctx context.Context, pod *corev1.Pod) error
	Skipped(skipped []disruption.Skip)
	// ReportCapacity reports whether evictions wait for free capacity, and why.
	ReportCapacity(explained string)

	report.Recorder
	rollouts.Reverter
}

// Runner runs the plans of iterations. It spreads the write time over namespaces and continues
// after the VPA where the last run ended.
type Runner struct {
	Executor Executor
	Policies *policies.Resolver
	Sharing  *shares.Sharing
	Pods     corelisters.PodLister
	Limiter  *disruption.RateLimiter // nil: no rate limit

	// cursor is the VPA of the last change of a run that ended early. The next run begins after it.
	cursor             cache.ObjectName
	slowNamespaces     map[string]time.Time // by namespace: time of a slow write
	unservedNamespaces map[string]bool      // namespaces with late writes that the last run left
}

// Plan is the input of a run.
type Plan struct {
	disruption.Result

	VPAs   []snapshot.VPA
	Holds  *rollouts.Holds
	Shares *shares.Result
	// Interrupter ends late writes for pods that were killed. Nil: never.
	Interrupter Interrupter
}

// Interrupter reports whether pods wait for more memory after an OOM kill.
type Interrupter interface {
	HasPendingOOM(ctx context.Context) bool
}

// Done is the result of a run.
type Done struct {
	Attempts    []Attempt
	Skipped     []disruption.Skip // planned changes that were not made
	Interrupted bool              // late writes are left for pods that were killed
}

// Attempt is a change that was sent to the API server, or failed before.
type Attempt struct {
	disruption.Action

	Outcome Outcome
}

// Outcome is the result of an attempt.
type Outcome uint8

// Outcomes of attempts.
const (
	OutcomeChanged   Outcome = iota // the pod was resized or evicted
	OutcomeLimited                  // by the rate limit of the API server's client
	OutcomeRefused                  // by the API server
	OutcomeTooLarge                 // the node can never grant the resize
	OutcomeProtected                // a resize with restart of a pod that must not be evicted
	OutcomePrevented                // for a temporary reason, before it was sent
)

type run struct {
	*Runner
	*Plan

	now     time.Time
	done    Done
	resized map[string]bool          // by pod UID: changed in this run, its share is not sent again
	marks   map[string]*sharing.Mark // by pod UID: marks to write with the resize
	turns   writeTurns

	maybeApplied bool // the change in progress was made, or may have been
}

// Run runs a plan until the rate limit or ctx ends it. The order is: recommendations joined with
// reverted shares, other reverted shares, other recommendations, other shares. Namespaces with slow
// writes come last, see writeTurns.
func (r *Runner) Run(ctx context.Context, plan *Plan, now time.Time) Done {
	if r.slowNamespaces == nil {
		r.slowNamespaces, r.unservedNamespaces = map[string]time.Time{}, map[string]bool{}
	}
	w := &run{Runner: r, Plan: plan, now: now, resized: map[string]bool{}, marks: maps.Clone(plan.Shares.Moves)}
	w.turns.used = map[string]time.Duration{}
	w.markShares(ctx)
	joined, reverts, others, shares := byStage(plan.Actions)
	w.changeAll(ctx, joined)
	w.moveShares(ctx, reverts)
	w.recordBackoffs(ctx)
	others = plan.Holds.OrderStarts(r.fromCursor(others))
	if made := w.changeAll(ctx, others); made < len(others) {
		// The next run begins after the last change, or after the first action if that alone used
		// up the run. Otherwise it would use up every run.
		r.cursor = snapshot.VPAOf(others[max(made-1, 0)].Subject)
	}
	w.moveShares(ctx, shares)
	w.endShares(ctx)
	w.runLate(ctx)
	return w.done
}

func (r *Runner) fromCursor(actions []disruption.Action) []disruption.Action {
	next := slices.IndexFunc(actions, func(a disruption.Action) bool {
		return cmp.Or(cmp.Compare(a.Namespace, r.cursor.Namespace), cmp.Compare(a.VPA, r.cursor.Name)) > 0
	})
	if next <= 0 {
		return actions
	}
	return slices.Concat(actions[next:], actions[:next])
}

func (w *run) vpa(of disruption.Subject) (v snapshot.VPA) {
	if i := snapshot.Find(w.VPAs, snapshot.VPAOf(of)); i >= 0 {
		v = w.VPAs[i]
	}
	return v
}

// changeAll returns how many actions were made, skipped or left for later before the rate limit or
// the end of the time.
func (w *run) changeAll(ctx context.Context, actions []disruption.Action) int {
	for i, a := range actions {
		target := snapshot.CurrentPod(w.Pods, a.Subject)
		if target == nil {
			continue
		}
		disrupts := a.Evict || a.Restarts
		var write func(ctx context.Context) bool
		write = func(ctx context.Context) bool {
			c := Change{Action: a, Object: target, Autoscaler: w.vpa(a.Subject), Observed: w.Holds.Observes(a.Subject)}
			if w.resized[c.UID] {
				c.Share = nil
			} else if c.Share != nil {
				c.Mark = w.marks[c.UID]
			}
			skipReason := w.tryChange(ctx, c)
			switch {
			case skipReason == turnEnded && !w.turns.lateBegun:
				w.turns.late = append(w.turns.late, lateWrite{subject: a.Subject, disrupts: disrupts, do: write})
			case skipReason == turnEnded:
				w.skip(a.Subject, reason.RateLimited)
			case skipReason != "":
				w.skip(a.Subject, skipReason)
			}
			return skipReason != reason.RateLimited
		}
		// At once, or in runLate, after the other namespaces.
		if continues := w.writeNowOrLater(ctx, a.Subject, disrupts, write); !continues {
			klog.FromContext(ctx).V(1).Info("Ending iteration: rate limit or time allow no further change", "left", len(actions)-i)
			for _, left := range actions[i+1:] {
				w.skip(left.Subject, reason.RateLimited)
			}
			return i
		}
	}
	return len(actions)
}

func (w *run) skip(s disruption.Subject, why reason.Reason) {
	w.done.Skipped = append(w.done.Skipped, disruption.Skip{Subject: s, Reason: why})
}

func (w *run) recordAttempt(c Change, outcome Outcome) {
	w.done.Attempts = append(w.done.Attempts, Attempt{Action: c.Action, Outcome: outcome})
}

// tryChange makes a change and returns a reason if it was not made, or "". It recovers from a
// panic. A change that was not made returns the rollout start of its workload.
func (w *run) tryChange(ctx context.Context, c Change) reason.Reason {
	if err := lease.Check(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Ending iteration")
		return reason.RateLimited
	}
	skipReason := reason.InternalError
	if err := serving.Guard(func() error { skipReason = w.change(ctx, c); return nil }); err != nil {
		w.recordAttempt(c, OutcomePrevented)
		klog.FromContext(ctx).Error(err, "Skipping pod: recovered from a panic", "pod", klog.KRef(c.Namespace, c.Pod), "vpa", c.VPA)
	}
	if skipReason != "" {
		w.Holds.ReturnStart(c.Subject)
	}
	return skipReason
}

func (w *run) change(ctx context.Context, c Change) reason.Reason {
	switch {
	case c.IsUrgent():
		ctx = client.Urgent(ctx)
	case w.Holds.Limited(c.Namespace): // it would only use up rate limits
		return reason.WriteLimit
	}
	switch why := w.Policies.StopReason(c.Autoscaler.Object, c.Cause.Shares()); {
	case why == reason.PolicyUnknown && c.Cause == disruption.ShareEnded: // the pod still gets its peak
	case why != "":
		return why
	}
	if !c.Cause.Shares() {
		if why := w.Holds.Admit(ctx, c.Subject); why != "" { // only under a SizingPolicy
			return why
		}
	}
	if c.Evict {
		return w.changeAtRate(c, func() reason.Reason { return w.evict(ctx, c) })
	}
	if c.Restarts {
		return w.changeAtRate(c, func() reason.Reason { return w.resize(ctx, c) })
	}
	return w.resize(ctx, c)
}

// changeAtRate returns the token of a change that was not made.
func (w *run) changeAtRate(c Change, do func() reason.Reason) reason.Reason {
	if w.Limiter == nil || !c.Disrupts {
		return do()
	}
	if !w.Limiter.Take(c.Namespace, w.now) {
		return reason.DisruptionRateLimited
	}
	w.maybeApplied = false
	skipReason := do()
	if skipReason != "" && !w.maybeApplied {
		w.Limiter.Return(c.Namespace)
	}
	return skipReason
}

func (w *run) recordSent(of disruption.Subject, err error) {
	if err == nil || errors.Is(err, ErrDryRun) || errors.Is(err, ErrUncertain) {
		w.maybeApplied = true
		w.Holds.Sent(of)
	}
}

// unsentResizes are the errors of Executor.Resize after which no resize was sent.
var unsentResizes = []struct {
	err     error
	reason  reason.Reason
	counts  bool // as an attempt, with the outcome
	outcome Outcome
}{
	{err: ErrInUse, reason: reason.MemoryInUse, counts: true, outcome: OutcomePrevented},
	{err: ErrRateLimited, reason: reason.RateLimited, counts: true, outcome: OutcomeLimited},
	{err: ErrRestarting, reason: reason.RestartInProgress},
	{err: snapshot.ErrStale, reason: reason.PodChanged},
	{err: ErrNotRecordable, reason: reason.NotRecordable},
	{err: ErrTurnEnded, reason: turnEnded},
}

func (w *run) resize(ctx context.Context, c Change) reason.Reason {
	note, err := w.Executor.Resize(ctx, c)
	w.recordSent(c.Subject, err)
	switch {
	case err == nil:
		w.recordAttempt(c, OutcomeChanged)
		w.resized[c.UID] = true
		if c.Shrinks || c.Share != nil && c.Share.Shrinks {
			w.Sharing.Shrank(c.Object.Spec.NodeName, w.now)
		}
		w.Holds.Changed(ctx, c.Subject, note)
		return ""
	case errors.Is(err, ErrDryRun):
		w.resized[c.UID] = true
		return ""
	}
	for _, u := range unsentResizes {
		if errors.Is(err, u.err) {
			if u.counts {
				w.recordAttempt(c, u.outcome)
			}
			return u.reason
		}
	}
	if client.IsWriteLimited(err) {
		return w.Holds.LimitWrites(c.Namespace)
	}
	if c.Share != nil && Rejected(err) { // perhaps only for the share, which evicts no pod
		c.Share, c.Mark = nil, nil
		return w.resize(ctx, c)
	}
	klog.FromContext(ctx).V(2).Info("Failed to resize pod", "pod", klog.KObj(c.Object), "vpa", c.VPA, "reason", err)
	if held := (*BlockedError)(nil); errors.As(err, &held) {
		return held.Reason
	}
	switch {
	case errors.Is(err, ErrProtected):
		w.recordAttempt(c, OutcomeProtected)
		return reason.EvictionRefused
	case NoCapacity(err):
		w.recordAttempt(c, OutcomeTooLarge)
	default:
		w.recordAttempt(c, OutcomeRefused)
	}
	w.recordFailure(ctx, c, note, err)
	if c.MayEvict && Refused(err) {
		c.Evict, c.Cause = true, disruption.ResizeStuck
		evict := func() reason.Reason { return w.evict(ctx, c) }
		var why reason.Reason
		if c.Restarts { // counted already
			why = evict()
		} else {
			why = w.changeAtRate(c, evict)
		}
		if why != turnEnded { // a repetition would send the refused resize again
			return why
		}
	}
	return reason.ResizeRefused
}

// recordFailure ignores a resize that was not sent, or may have been made.
func (w *run) recordFailure(ctx context.Context, c Change, note rollout.Change, err error) {
	if note.At.IsZero() || !Refused(err) {
		return
	}
	w.Executor.Event(c.Autoscaler.Object, report.EventResizeFailed, "A pod could not be resized: "+withoutPodName(err, c.Pod),
		withError(detailsOf(c.Object, DescribeChange(c)), err))
	w.Holds.Ended(ctx, c.Subject, note, rollout.Failed)
}

func (w *run) evict(ctx context.Context, c Change) reason.Reason {
	err := w.Executor.Evict(ctx, c)
	w.recordSent(c.Subject, err)
	switch {
	case err == nil:
		w.recordAttempt(c, OutcomeChanged)
		w.resized[c.UID] = true
		if hold := w.Holds.HoldOf(c.Subject); hold != nil && hold.Observed && !c.Cause.Shares() {
			w.Holds.Ended(ctx, c.Subject, NewNote(c, w.now), rollout.Evicted)
		}
		return ""
	case errors.Is(err, ErrRestarting):
		return reason.RestartInProgress
	case errors.Is(err, ErrDryRun):
		return ""
	case IsGone(err):
		klog.FromContext(ctx).V(4).Info("Not evicting pod: it is gone", "pod", klog.KObj(c.Object), "vpa", c.VPA)
		return ""
	case errors.Is(err, ErrTurnEnded):
		return turnEnded
	case errors.Is(err, ErrRateLimited):
		w.recordAttempt(c, OutcomeLimited)
		return reason.RateLimited
	case client.IsWriteLimited(err):
		return w.Holds.LimitWrites(c.Namespace)
	}
	klog.FromContext(ctx).V(2).Info("Failed to evict pod", "pod", klog.KObj(c.Object), "vpa", c.VPA, "reason", err)
	if held := (*BlockedError)(nil); errors.As(err, &held) {
		return held.Reason
	}
	w.recordAttempt(c, OutcomeRefused)
	return reason.EvictionRefused
}

// byStage splits actions by the order of Run. A share in a recommendation is also listed by itself,
// in case the recommendation is not carried out.
func byStage(actions []disruption.Action) (joined, reverts, others, shares []disruption.Action) {
	for _, a := range actions {
		share := a.Share
		switch {
		case a.SharesOnly():
			share = &a
		case a.Stage == disruption.StageRevert:
			joined = append(joined, a)
		default:
			others = append(others, a)
		}
		switch {
		case share == nil:
		case share.Stage == disruption.StageRevert:
			reverts = append(reverts, *share)
		default:
			shares = append(shares, *share)
		}
	}
	slices.SortStableFunc(shares, func(a, b disruption.Action) int { return cmp.Compare(a.Stage, b.Stage) })
	return joined, reverts, others, shares
}

func (w *run) moveShares(ctx context.Context, actions []disruption.Action) {
	for i, a := range actions {
		if !w.writeNowOrLater(ctx, a.Subject, false, func(ctx context.Context) bool { return w.moveShare(ctx, a) }) {
			klog.FromContext(ctx).V(1).Info("Ending iteration: rate limit or time allow no further share", "left", len(actions)-i)
			for _, left := range actions[i+1:] {
				if !w.resized[left.UID] {
					w.skip(left.Subject, reason.RateLimited)
				}
			}
			return
		}
	}
}

// moveShare resizes a pod to its share and reports whether the run continues.
func (w *run) moveShare(ctx context.Context, a disruption.Action) bool {
	if w.resized[a.UID] {
		return true // written with another change
	}
	c := Change{Action: a, Autoscaler: w.vpa(a.Subject), Mark: w.marks[a.UID]}
	if c.Object = snapshot.CurrentPod(w.Pods, a.Subject); c.Object == nil {
		return true // gone
	}
	why := w.tryChange(ctx, c)
	if why != "" {
		w.skip(a.Subject, why)
	}
	return why != reason.RateLimited
}
