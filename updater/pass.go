package updater

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/snapshot"
)

// pass is one pass under way.
type pass struct {
	*Loop
	*iteration
	scores   map[cache.ObjectName]*score
	order    []*score
	skipped  []disruption.Skip
	rollouts map[cache.ObjectName]*heldWorkload // by VPA
	limits   map[string]*policies.Limits        // by policy
	counted  uint64                             // reverts that limits take into account
	resized  map[string]bool                    // by UID of a pod: it was resized or evicted in this pass, so its share moves no more
	now      time.Time
	hanging  map[string]bool // namespaces in which a write of a record timed out
	limited  map[string]bool // namespaces that used their write limit
	turns    writeTurns
	yields   bool // late writes give way to an early pass

	skipsSaid int // events of announceSkip in this pass
}

// begin counts what is planned, and logs for which VPAs nothing could be.
func (l *Loop) begin(ctx context.Context, it *iteration, plan disruption.Result, now time.Time) *pass {
	vpas := it.view.VPAs
	p := &pass{Loop: l, iteration: it, scores: make(map[cache.ObjectName]*score, len(vpas)), order: make([]*score, 0, len(vpas)),
		skipped: append(append(plan.Skipped, it.pods.Skipped...), it.view.Skipped...), now: now, limited: map[string]bool{}}
	for _, problem := range plan.Problems {
		klog.FromContext(ctx).Error(errors.New(problem.Panic), "Skipping the pods of a VPA: recovered from a panic of the planner, please report it", "vpa", klog.KRef(problem.Namespace, problem.VPA))
	}
	scores := make([]score, len(vpas))
	for i := range vpas {
		if vpas[i].Held != "" {
			continue // it acts no more
		}
		name := cache.NewObjectName(vpas[i].Namespace, vpas[i].Name)
		s := &scores[i]
		*s = score{Name: name, Pods: len(vpas[i].Pods), Mode: it.mode(name)}
		p.scores[name], p.order = s, append(p.order, s)
		l.metrics.Begin(s)
	}
	for i := range plan.Actions {
		a := &plan.Actions[i]
		switch {
		case a.SharesOnly():
		case a.Evict:
			p.score(a.Subject).Evictable++
		default:
			p.score(a.Subject).Updatable++
		}
		if a.Skip != "" {
			p.skip(a.Subject, a.Skip)
		}
	}
	for _, s := range p.skipped {
		if s.Reason != reason.BudgetSpent {
			continue
		}
		if score := p.score(s.Subject); resizes(score.Mode) {
			score.Updatable++
		} else {
			score.Evictable++
			score.Waiting++
		}
	}
	return p
}

// score returns that of the VPA of a pod.
func (p *pass) score(of disruption.Subject) *score {
	name := vpaOf(of)
	s := p.scores[name]
	if s == nil { // the policy of a pod that shared is gone, so that its VPA acts no more
		s = &score{Name: name, Mode: vpav1.UpdateModeInPlace, Pods: 1}
		p.scores[name] = s
	}
	return s
}

// planned returns the VPA of a pod as the plan used it.
func (p *pass) planned(of disruption.Subject) snapshot.VPA {
	if v := p.vpa(vpaOf(of)); v != nil {
		return *v
	}
	return snapshot.VPA{}
}

func vpaOf(s disruption.Subject) cache.ObjectName { return cache.NewObjectName(s.Namespace, s.VPA) }

func resizes(m vpav1.UpdateMode) bool {
	return m == vpav1.UpdateModeInPlaceOrRecreate || m == vpav1.UpdateModeInPlace
}

// fromCursor moves the actions of the VPAs up to the one that was served last
// behind all others.
func (l *Loop) fromCursor(actions []disruption.Action) []disruption.Action {
	next := slices.IndexFunc(actions, func(a disruption.Action) bool {
		return cmp.Or(cmp.Compare(a.Namespace, l.cursor.Namespace), cmp.Compare(a.VPA, l.cursor.Name)) > 0
	})
	if next <= 0 {
		return actions
	}
	return slices.Concat(actions[next:], actions[:next])
}

// carryOut carries out what is planned until the rate limit ends the pass: first what takes back
// what a share did, then the plan, then all other shares. Namespaces that use much time come last,
// see writeTurns.
func (p *pass) carryOut(ctx context.Context, plan disruption.Result) {
	joined, reverts, others, shares := byStage(plan.Actions)
	p.makeAll(ctx, joined)
	p.carryOutShares(ctx, reverts)
	p.pause(ctx, plan.Backoffs)
	others = p.inTurnsOfStarts(p.fromCursor(others))
	if made := p.makeAll(ctx, others); made < len(others) {
		// The next pass begins behind what this one got through, or behind the first action if that alone
		// used up the pass: it must not do so in each.
		p.cursor = vpaOf(others[max(made-1, 0)].Subject)
	}
	p.carryOutShares(ctx, shares)
	p.endShares(ctx)
	p.carryOutLate(ctx)
}

// makeAll makes changes until the rate limit ends the pass, and returns how many it let through.
func (p *pass) makeAll(ctx context.Context, actions []disruption.Action) int {
	for i, a := range actions {
		target := p.pod(a.Subject)
		if target == nil {
			continue // it is gone
		}
		disrupts := a.Evict || a.Restarts
		var write func(ctx context.Context) bool
		write = func(ctx context.Context) bool {
			c := actuate.Change{Action: a, Target: target, Autoscaler: p.planned(a.Subject), Observed: p.observes(a.Subject)}
			if p.resized[c.UID] {
				c.Share = nil
			} else if c.Share != nil {
				c.Mark = p.division.Moves[c.UID]
			}
			why := p.make(ctx, c)
			switch {
			case why == turnEnded && !p.turns.lateBegun:
				p.turns.late = append(p.turns.late, lateWrite{about: a.Subject, disrupts: disrupts, do: write})
			case why == turnEnded:
				p.skip(a.Subject, reason.RateLimited)
			case why != "":
				p.skip(a.Subject, why)
			}
			return why != reason.RateLimited
		}
		goesOn := p.inTurn(ctx, a.Subject, disrupts, write)
		if !goesOn {
			klog.FromContext(ctx).V(1).Info("Pass ended: neither rate limit nor time allow a further change before the next one", "left", len(actions)-i)
			for _, left := range actions[i+1:] {
				p.skip(left.Subject, reason.RateLimited)
			}
			return i
		}
	}
	return len(actions)
}

// make makes one change and returns why it did not come about, or nothing.
func (p *pass) make(ctx context.Context, c actuate.Change) reason.Reason {
	if err := lease.Check(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Ending iteration")
		return reason.RateLimited
	}
	why := reason.InternalError
	err := serving.Guard(func() error { why = p.change(ctx, c); return nil })
	if err != nil {
		p.state.Record(c.Action, disruption.Prevented, p.now)
		klog.FromContext(ctx).Error(err, "Pod skipped: its change failed in an unforeseen way", "pod", klog.KRef(c.Namespace, c.Pod), "vpa", c.VPA)
	}
	if why != "" {
		p.returnStart(c.Subject)
	}
	return why
}

// pause writes on pods what a restart must not forget: that changes of their
// workload had no effect, and until when none is made. When the pass has no time
// left it goes on only as long as the API server takes them: the lease waits.
func (p *pass) pause(ctx context.Context, pauses []disruption.PodBackoff) {
	for _, one := range pauses {
		pod := p.pod(one.Subject)
		if pod == nil {
			continue
		}
		goesOn := p.inTurn(ctx, one.Subject, false, func(ctx context.Context) bool {
			err := p.executor.RecordBackoff(ctx, pod, one.Backoff)
			if err == nil || actuate.Gone(err) || client.IsWriteLimited(err) { // a later pass writes it
				return true
			}
			klog.FromContext(ctx).Error(err, "Failed to write a back-off on a pod, a restart forgets it", "pod", klog.KRef(one.Namespace, one.Pod), "vpa", one.VPA)
			return ctx.Err() == nil
		})
		if !goesOn {
			return
		}
	}
}

func (p *pass) skip(s disruption.Subject, why reason.Reason) {
	p.skipped = append(p.skipped, disruption.Skip{Subject: s, Reason: why})
}

// change is make of what does not fail in an unforeseen way.
func (p *pass) change(ctx context.Context, c actuate.Change) reason.Reason {
	switch {
	case c.Protects():
		ctx = client.Urgent(ctx)
	case p.limited[c.Namespace]: // it would only use up rate limits
		return reason.WriteLimit
	}
	switch why := p.Loop.policies.Current(c.Autoscaler.Object); {
	case why == reason.PolicyUnknown && c.Cause == disruption.ShareEnded: // a pod that shared gets its peak all the same
	case why != "":
		return why
	}
	if !c.Cause.Shares() {
		if why := p.admit(ctx, c.Subject); why != "" { // only under a SizingPolicy
			return why
		}
	}
	if c.Evict {
		return p.paced(c, func() reason.Reason { return p.evict(ctx, c) })
	}
	if c.Restarts {
		return p.paced(c, func() reason.Reason { return p.resize(ctx, c) })
	}
	return p.resize(ctx, c)
}

// paced makes a change that disturbs a pod if the rate limit lets it through. One
// that did not come about is not counted.
func (p *pass) paced(c actuate.Change, do func() reason.Reason) reason.Reason {
	if p.limiter == nil || !c.Disrupts {
		return do()
	}
	if !p.limiter.Take(c.Namespace, p.now) {
		return reason.DisruptionRateLimited
	}
	why := do()
	if why != "" {
		p.limiter.Return(c.Namespace)
	}
	return why
}

func (p *pass) resize(ctx context.Context, c actuate.Change) reason.Reason {
	score := p.score(c.Subject)
	note, err := p.executor.Resize(ctx, c)
	p.sent(c.Subject, err)
	switch {
	case err == nil:
		p.state.Record(c.Action, disruption.Done, p.now)
		p.endMoves(c.UID)
		if c.Shrinks || c.Share != nil && c.Share.Shrinks {
			p.shares.Shrank(c.Target.Spec.NodeName, p.now)
		}
		p.metrics.Resized(score)
		p.count(c, actuate.EventResizedPods)
		p.changed(ctx, c.Subject, note)
		return ""
	case errors.Is(err, actuate.ErrInUse):
		p.state.Record(c.Action, disruption.Prevented, p.now)
		return reason.MemoryInUse
	case errors.Is(err, actuate.ErrRestarting):
		return reason.RestartUnderWay
	case errors.Is(err, actuate.ErrStale): // nothing was tried
		return reason.PodChanged
	case errors.Is(err, actuate.ErrNotRecordable):
		return reason.NotRecordable
	case errors.Is(err, actuate.ErrRehearsed):
		p.endMoves(c.UID)
		return ""
	case errors.Is(err, actuate.ErrTurnEnded):
		return turnEnded
	case errors.Is(err, actuate.ErrRateLimited):
		p.metrics.FailedResize(score, "InPlaceUpdateRateLimiterWaitFailed")
		return reason.RateLimited
	case client.IsWriteLimited(err):
		return p.writeLimited(c.Namespace)
	}
	if c.Share != nil && actuate.Rejected(err) { // perhaps for the share alone: nobody is evicted for one
		c.Share, c.Mark = nil, nil
		return p.resize(ctx, c)
	}
	klog.FromContext(ctx).V(2).Info("Pod could not be resized", "pod", klog.KObj(c.Target), "vpa", c.VPA, "reason", err)
	if held := (*actuate.Held)(nil); errors.As(err, &held) {
		return held.Reason
	}
	failure, outcome := "InPlaceUpdateError", disruption.Failed
	if actuate.NoCapacity(err) {
		outcome = disruption.TooMuch
		if score.Mode == vpav1.UpdateModeInPlace {
			failure = "InPlaceUpdateInfeasible"
		}
	}
	p.metrics.FailedResize(score, failure)
	if errors.Is(err, actuate.ErrProtected) {
		p.state.Record(c.Action, disruption.Prevented, p.now)
		return reason.EvictionRefused
	}
	p.state.Record(c.Action, outcome, p.now)
	p.failed(ctx, c, note, err)
	if c.MayEvict && actuate.Refused(err) {
		c.Evict, c.Cause = true, disruption.ResizeStuck
		evict := func() reason.Reason { return p.evict(ctx, c) }
		var why reason.Reason
		if c.Restarts { // it is counted already
			why = evict()
		} else {
			why = p.paced(c, evict)
		}
		if why != turnEnded { // a repetition would send the refused resize again
			return why
		}
	}
	return reason.ResizeRefused
}

func (p *pass) evict(ctx context.Context, c actuate.Change) reason.Reason {
	score := p.score(c.Subject)
	err := p.executor.Evict(ctx, c)
	p.sent(c.Subject, err)
	switch {
	case err == nil:
		p.state.Record(c.Action, disruption.Done, p.now)
		p.metrics.Evicted(score)
		p.count(c, actuate.EventEvictedPod)
		p.endMoves(c.UID)
		if c.Cause.Shares() {
			p.metrics.SharingEvicted()
		} else {
			p.evicted(ctx, c)
		}
		return ""
	case errors.Is(err, actuate.ErrRestarting):
		return reason.RestartUnderWay
	case errors.Is(err, actuate.ErrRehearsed):
		return ""
	case actuate.Gone(err):
		klog.FromContext(ctx).V(4).Info("Pod not evicted: it is gone already", "pod", klog.KObj(c.Target), "vpa", c.VPA)
		return ""
	case errors.Is(err, actuate.ErrTurnEnded):
		return turnEnded
	case errors.Is(err, actuate.ErrRateLimited):
		p.metrics.FailedEviction(score, evictionRateLimited)
		return reason.RateLimited
	case client.IsWriteLimited(err):
		return p.writeLimited(c.Namespace)
	}
	klog.FromContext(ctx).V(2).Info("Pod could not be evicted", "pod", klog.KObj(c.Target), "vpa", c.VPA, "reason", err)
	if held := (*actuate.Held)(nil); errors.As(err, &held) {
		return held.Reason
	}
	score.Refused = score.Refused || !c.Cause.Shares()
	p.metrics.FailedEviction(score, evictionError)
	return reason.EvictionRefused
}

// writeLimited leaves the other changes of a namespace that used its write limit to a later pass.
func (p *pass) writeLimited(namespace string) reason.Reason {
	p.limited[namespace] = true
	return reason.WriteLimit
}

// sayWhyLeftAlone does.
func (p *pass) sayWhyLeftAlone(ctx context.Context) {
	for _, s := range p.skipped {
		if s.Reason == reason.Infeasible {
			p.metrics.Infeasible(p.score(s.Subject))
			if pod := p.pod(s.Subject); pod != nil {
				p.executor.NotResizable(ctx, pod)
			}
		}
	}
	news, events := p.skips.Report(ctx, p.skipped, p.now)
	p.executor.LeftAlone(news)
	for i := range news {
		p.announceSkip(&news[i])
	}
	for _, e := range events {
		if p.announced.Sent(report.Event{VPA: e.VPA, Reason: actuate.EventResizeSkipped, About: e.Reason.String()}) {
			continue
		}
		if vpa := p.vpaNow(e.VPA); vpa != nil {
			p.executor.Event(vpa, e.Reason.String(), e.Message, nil)
		}
	}
}

// publishGauges does, and drops the counters of deleted VPAs.
func (p *pass) publishGauges() {
	skipped := map[reason.Reason]int{reason.NoVPA: p.pods.NoVPA}
	for _, s := range p.skipped {
		skipped[s.Reason]++
	}
	p.metrics.Publish(p.order, skipped)
	for name := range p.known {
		if snapshot.Find(p.vpas, name) < 0 {
			p.metrics.Forget(name)
			delete(p.known, name)
		}
	}
	for name := range p.scores {
		p.known[name] = true
	}
}
