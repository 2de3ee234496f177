package oldview

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/serving"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
	"loadline.dev/loadline/updater/records"
)

// Planner plans iterations as the updater did.
type Planner struct {
	Config   disruption.Config
	Reader   *Reader
	Records  *records.Store
	Capacity CapacityReader // of recommendations
	Shared   CapacityReader // of shares
	Nodes    *StaticCPUNodes
	Budgets  *Budgets
	Interval time.Duration // between two rounds of sharing
	Cluster  *Cluster

	passed map[string]time.Time // by UID of a pod: when it was last free to change, and was left alone
	state  disruption.State
	states [turns]disruption.State // of the plans for pods that share, by turn
	seldom bool
	window time.Time
	sign   string // explanation of the room for evictions
}

// Iteration is a planned iteration.
type Iteration struct {
	Snapshot *Snapshot
	Rollouts map[cache.ObjectName]*Held // by VPA
	Skipped  []disruption.Skip
	Actions  []Planned // in the order in which they are carried out
	Backoffs []disruption.PodBackoff
	Marks    []Marking            // written before anything is changed
	Ended    []disruption.Subject // the mark of these pods is removed

	planner *Planner
	plan    disruption.Result
	shares  shareMoves
	evicted map[string]bool // by UID of the pod
	now     time.Time
}

// Planned is an action with what a pod gets of what it shares.
type Planned struct {
	disruption.Action
	Stage    int                // 1: reverted shares and what is resized with them. 2: recommendations. 3: other shares
	Share    *disruption.Action // written with the action; nil: nothing
	Mark     *sharing.Mark      // written before the share
	Shrinks  bool               // the share is smaller
	Observed bool               // the change is noted on the pod and judged
}

// Plan plans an iteration. An early one plans only resizes after out-of-memory kills.
func (p *Planner) Plan(ctx context.Context, now time.Time, early bool) (*Iteration, error) {
	snapshot, err := p.Reader.Read(ctx, now, func(string) {})
	if err != nil {
		return nil, err
	}
	if !early {
		if err := serving.Guard(func() error { p.share(ctx, now); return nil }); err != nil {
			return nil, err
		}
	}
	it := p.planPass(ctx, snapshot, now)
	if early {
		others := func(a disruption.Action) bool { return !a.OOMResize }
		it.plan.Actions = slices.DeleteFunc(it.plan.Actions, others)
		it.shares.are(slices.DeleteFunc(it.shares.actions, others))
		it.shares.ended = nil
		for i := range it.plan.Actions {
			it.plan.Actions[i].MayEvict = false
		}
	}
	it.order()
	return it, nil
}

func (p *Planner) share(ctx context.Context, now time.Time) {
	window := now.Truncate(p.Interval)
	if window.Equal(p.window) {
		return
	}
	var standings Standings
	standings, p.seldom = p.Cluster.standings(ctx, now)
	if _, err := p.Reader.Share(ctx, now, standings); err == nil {
		p.window = window
	}
}

func (p *Planner) planPass(ctx context.Context, snapshot *Snapshot, now time.Time) *Iteration {
	division := p.Reader.Divide(ctx, snapshot, p.seldom, now)
	moves := p.planReverts(ctx, division, now)
	rollouts := p.hold(ctx, snapshot, p.Reader.Limits(now.UTC().Truncate(time.Second)), now)
	plan := p.planAll(ctx, snapshot, &moves, now)
	p.state = plan.State
	for i := range plan.Skipped {
		if s := &plan.Skipped[i]; (s.Reason == reason.Unchanged || s.Reason == reason.NoRecommendation) && snapshot.HasShare(s.UID) {
			s.Reason = reason.HasShare
		}
	}
	it := &Iteration{planner: p, Snapshot: snapshot, Skipped: append(plan.Skipped, snapshot.Skipped...), Rollouts: rollouts, plan: plan, now: now}
	it.shares = p.moveShares(ctx, it, division, plan, moves)
	return it
}

// order lists what is carried out, as if everything succeeded. Pods that are evicted get no share.
func (it *Iteration) order() {
	reverts := it.shares.reverts()
	joined, others := it.shares.joined(it.plan.Actions)
	it.Marks, it.Ended, it.Backoffs = it.shares.marks, it.shares.ended, it.plan.Backoffs
	for _, m := range it.Marks {
		if moved := it.shares.pods[m.Of.UID]; moved != nil {
			moved.Marked = true
		}
	}
	it.evicted = map[string]bool{}
	for _, a := range others {
		it.evicted[a.UID] = it.evicted[a.UID] || a.Evict
	}
	it.add(1, joined)
	it.addShares(1, it.shares.actions[:reverts])
	it.add(2, others)
	it.addShares(3, it.shares.actions[reverts:])
}

func (it *Iteration) add(stage int, actions []disruption.Action) {
	for _, a := range actions {
		one := Planned{Action: a, Stage: stage, Observed: it.observes(a.Subject)}
		if joins(a) {
			if one.Share = it.shares.shareOf(a.UID); one.Share != nil {
				one.Mark, one.Shrinks = it.shares.markOf(a.UID), it.shares.made(a.UID)
			}
		}
		it.Actions = append(it.Actions, one)
	}
}

func (it *Iteration) addShares(stage int, actions []disruption.Action) {
	for _, a := range actions {
		if it.shares.shareOf(a.UID) != nil && !it.evicted[a.UID] {
			it.Actions = append(it.Actions, Planned{Action: a, Stage: stage, Mark: it.shares.markOf(a.UID), Shrinks: it.shares.made(a.UID)})
		}
	}
}

// Record takes over the outcome of an action.
func (it *Iteration) Record(a *Planned, node string, o disruption.Outcome) {
	p := it.planner
	if o == disruption.Done && a.Shrinks {
		p.Reader.Shrank(node, it.now)
	}
	if a.Cause.Shares() && !a.Evict {
		p.states[turnOf(a.Cause)].Record(a.Action, o, it.now)
		return
	}
	p.state.Record(a.Action, o, it.now)
}

// End notes which pods were free and are left alone all the same.
func (it *Iteration) End() {
	passed := map[string]time.Time{}
	for _, s := range it.plan.Skipped {
		if h := it.Rollouts[vpaOf(s.Subject)]; h != nil && h.free {
			if i := h.index(s.UID); i >= 0 && h.Pods[i].Free {
				passed[s.UID] = it.now
			}
		}
	}
	for _, h := range it.Rollouts {
		for i := range h.input.Pods {
			pod := &h.input.Pods[i]
			if at, known := it.planner.passed[pod.UID]; known && passed[pod.UID].IsZero() {
				passed[pod.UID] = at
			}
		}
	}
	it.planner.passed = passed
}

// planAll plans for all VPAs. Only if something is to be done it looks whether there
// is room for it, beside what is taken back of shares, and plans again.
func (p *Planner) planAll(ctx context.Context, s *Snapshot, reverts *shareMoves, now time.Time) disruption.Result {
	if err := p.Nodes.Mark(&s.View, s.Pod, now); err != nil {
		klog.FromContext(ctx).Error(err, "It is not known which nodes have the static CPU manager policy")
	}
	if growth := p.Capacity.Growth; growth != nil && growth.Look(ctx, now) {
		p.sign = growth.Explain()
	}
	result := p.planned(s.View, now)
	if len(result.Actions) > 0 {
		p.Budgets.Mark(&s.View, result.Actions, now)
		room, err := p.Capacity.Room()
		if err != nil {
			klog.FromContext(ctx).Error(err, "It is not known whether there is room for changes")
		}
		keep(room, reverts.vpas, reverts.planned.Actions)
		s.View.Room = room
		result = p.planned(s.View, now)
	}
	return result
}

func (p *Planner) planned(v disruption.View, now time.Time) disruption.Result {
	result := disruption.Result{State: p.state}
	_ = serving.Guard(func() error { result = disruption.Plan(v, p.state, p.Config, now); return nil })
	return result
}

func vpaOf(s disruption.Subject) cache.ObjectName { return cache.NewObjectName(s.Namespace, s.VPA) }

// Held is a workload under a SizingPolicy in an iteration.
type Held struct {
	*Rollout
	limits *PolicyLimits // of its policy
	input  rollout.Workload
	Before rollout.State // as it is stored
	rollout.HoldResult
	free  bool           // some pod is
	byUID map[string]int // see index
}

func (h *Held) index(uid string) int {
	if h.byUID == nil {
		h.byUID = make(map[string]int, len(h.input.Pods))
		for i := range h.input.Pods {
			h.byUID[h.input.Pods[i].UID] = i
		}
	}
	if i, asked := h.byUID[uid]; asked {
		return i
	}
	return -1
}

// Turned reports whether the rollout is stored without a change of a pod.
func (h *Held) Turned() bool {
	return len(h.Before.Rounds) > 0 && h.State.Turned(h.Before)
}

// IsFree reports whether a pod may be changed as part of a round.
func (h *Held) IsFree(uid string) bool {
	i := h.index(uid)
	return i >= 0 && h.Pods[i].Free
}

// IsAbout reports whether the rollout was asked about a pod.
func (h *Held) IsAbout(uid string) bool { return h.index(uid) >= 0 }

// observes reports whether a change of a pod is noted on it and judged.
func (it *Iteration) observes(of disruption.Subject) bool {
	h := it.Rollouts[vpaOf(of)]
	if h == nil || !h.Observed {
		return false
	}
	i := h.index(of.UID)
	return i >= 0 && (h.Pods[i].Free || !h.input.Pods[i].Observed.IsZero())
}

func (l *Planner) hold(ctx context.Context, s *Snapshot, limits map[string]*PolicyLimits, now time.Time) map[cache.ObjectName]*Held {
	var all map[cache.ObjectName]*Held
	for i := range s.View.VPAs {
		v := &s.View.VPAs[i]
		of := s.RolloutAt(i)
		if of == nil || v.Outdated {
			continue
		}
		if all == nil {
			all = map[cache.ObjectName]*Held{}
		}
		if of.Resting && !l.passedAny(v) {
			holdLeaving(v, of, nil, now)
			continue
		}
		h := &Held{Rollout: of, limits: limits[of.Policy]}
		if err := serving.Guard(func() error { return l.holdOne(s, v, h, now) }); err != nil {
			klog.FromContext(ctx).Error(err, "Pods left alone: it is not known how far the rollout of their workload is", "vpa", klog.KRef(v.Namespace, v.Name))
			holdAll(v, reason.NoRecord)
			continue
		}
		holdLeaving(v, of, h, now)
		all[cache.NewObjectName(v.Namespace, v.Name)] = h
	}
	return all
}

func holdLeaving(v *disruption.VPA, of *Rollout, h *Held, now time.Time) {
	for i := range v.Pods {
		pod := &v.Pods[i]
		switch {
		case !pod.Leaving() || pod.Held == reason.EvictionNotAllowed:
		case h != nil && !h.input.Pods[i].Observed.IsZero():
			pod.Held = reason.UnderObservation
		case !of.Settings.Schedule.Open(now):
			pod.Held = reason.OutsideWindow
		}
	}
}

func (l *Planner) passedAny(v *disruption.VPA) bool {
	return len(l.passed) > 0 && slices.ContainsFunc(v.Pods, func(p disruption.Pod) bool { return !l.passed[p.UID].IsZero() })
}

func (l *Planner) holdOne(s *Snapshot, v *disruption.VPA, h *Held, now time.Time) error {
	state, err := l.Records.State(h.Workload)
	if err != nil {
		return err
	}
	if h.limits == nil {
		return errors.New("the limits of its SizingPolicy are unknown")
	}
	h.Before, h.input = state, l.Reader.Workload(s, v, h.Rollout, l.Config, now)
	h.input.Tripped, h.input.StartBlocked = h.limits.Trip.Holds(h.Workload.Key.Namespace), h.limits.Starts <= 0
	for i := range h.input.Pods {
		h.input.Pods[i].Passed = l.passed[h.input.Pods[i].UID]
	}
	h.ask(state, now)
	for i := range v.Pods {
		pod, answer := &v.Pods[i], h.Pods[i]
		pod.MemoryOnly, h.free = answer.MemoryOnly, h.free || answer.Free
		if !answer.Free {
			pod.Held = answer.Reason
			if pod.Held == "" && h.input.Pods[i].Due {
				pod.Held = reason.UnderObservation
			}
		}
		if l.harmed(s, pod, h, i, now) {
			pod.Held, pod.MemoryOnly = reason.UnderObservation, false
		}
	}
	switch {
	case h.Mode == fleet.Inherit || h.Evict: // with Inherit the VPA decides
	case v.Mode == disruption.InPlaceOrRecreate:
		v.Mode, v.Ungated = disruption.InPlace, true
	case v.Mode == disruption.Recreate:
		holdAll(v, reason.EvictionNotAllowed)
	}
	return nil
}

func (l *Planner) harmed(s *Snapshot, pod *disruption.Pod, h *Held, i int, now time.Time) bool {
	if h.input.Pods[i].Observed.IsZero() {
		return false
	}
	object := s.Pod(disruption.Subject{Namespace: pod.Namespace, Pod: pod.Name, UID: pod.UID})
	if object == nil {
		return false
	}
	change, err := convert.NotedChange(object)
	return err == nil && (change.Harm != "" || rollout.Judge(change, l.Reader.Evidence(object, pod, h.Workload.Key), h.Safety, now).Early != "")
}

func (h *Held) ask(state rollout.State, now time.Time) rollout.State {
	h.HoldResult = rollout.Hold(state, h.input, h.Settings, now.UTC().Truncate(time.Second))
	return h.State
}

func holdAll(v *disruption.VPA, why reason.Reason) {
	for i := range v.Pods {
		v.Pods[i].Held, v.Pods[i].MemoryOnly = why, false
	}
}
