// Package disruption decides which running pods are changed, how, and in which
// order, and says for every other pod why it is left alone.
//
// Plan takes a View (VPAs with their pods, as plain values), the State that the plan before left, and a Config. It
// returns Actions in the order in which they are to be carried out, Skips with their Reason, and the State for the next
// plan. The steps can also be asked one by one: Assess says whether a pod is worth a change and how urgent, a Budget
// how many pods of one owner may be away, Decide what can be done in place.
//
// types.go has what a plan looks at, capacity.go what nodes and quotas have left for a change,
// state.go what it must know of earlier plans, backoff.go what came of the changes of a workload,
// and ratelimit.go how many disruptions a minute there may be.
//
// Two rules hold above all others. Nothing is disrupted without effect: a pod is acted on only if it would get
// something else than it has. And resizes and evictions draw from one budget and are planned together, the most urgent
// first. The package does not wait between actions, carries nothing out, and remembers nothing but in its State.
package disruption

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
)

// Subject names one pod and its VPA, which is in the same namespace.
type Subject struct {
	Namespace, VPA, Pod, UID string
}

// Action is one intended change to one pod.
type Action struct {
	Subject
	Stage      Stage
	Evict      bool                     // else resize
	Cause      Cause                    // why
	Containers []policy.ContainerTarget // what the pod would get; containers left alone are missing
	Restarts   bool                     // a resize restarts a container, so it is a disruption
	// Restart is what State.Record remembers of a resize that restarts a ready pod; else the zero value.
	Restart Restart
	// MayEvict allows to evict the pod at once if the resize is refused, as the mode and the budget do.
	MayEvict bool
	Disrupts bool // the pod is ready, and would not be for a while; with MayEvict only if it comes to that

	OOMResize bool // a resize that gives memory to a pod that does not work for want of it
	Shrinks   bool // its share takes something from a container

	Share *Action       // what the same resize gives the pod of what it shares; nil: nothing
	Skip  reason.Reason // why the other part, its share or what is recommended, is left out; empty: nothing is

	// What State.Record remembers: whose pod it is, what is changed, and when the newest pod of the owner was created.
	Owner  string
	Change Change
	Newest time.Time
}

// Skip is one pod that is left alone.
type Skip struct {
	Subject
	Reason reason.Reason
}

// Result is a plan.
type Result struct {
	Actions  []Action // in the order in which they are to be carried out
	Skipped  []Skip
	Backoffs []PodBackoff // to be written on pods, so that another process knows of them
	Problems []Problem    // VPAs for which no plan could be made
	State    State        // for the next plan
}

// Problem is a panic while a VPA was planned for. Its pods are skipped with InternalError.
type Problem struct {
	Namespace, VPA string
	Panic          string // what it said, and the stack
}

// PodBackoff is what is to be remembered of a pod that came back without the change for
// which the one before was evicted. Pod.Backoff hands it to a later plan.
type PodBackoff struct {
	Subject
	Backoff
}

// Plan decides about every pod of the view: each is in one Skip, or in Actions. It changes neither
// the view nor the state it is given. The steps take from one Capacity, in this order:
//
//  1. shares that did harm are reverted (Share.Cause ShareReverted)
//  2. pods get what is recommended (plan.vpa). VPAs come in the order of namespace and name, the pods of a VPA
//     the most urgent first, and what is put off comes last
//  3. pods that share no more get their peak (ShareEnded)
//  4. all other shares move (Shared), those that shrink first
//  5. both parts of a pod become one action (sharePlan.join)
//
// Shares move in place where the node has room, and need no budget (sharePlan). Of two reasons that of the
// recommendation is reported, unless it is only that the pod has what is recommended.
func Plan(view View, before State, c Config, now time.Time) Result {
	order := make([]*VPA, len(view.VPAs))
	pods := 0
	for i := range view.VPAs {
		order[i] = &view.VPAs[i]
		pods += len(order[i].Pods)
	}
	slices.SortStableFunc(order, func(a, b *VPA) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	shares := newSharePlan(order, view.Room.Clone(), before.Shared, now)
	shares.plan(revertStep)
	p := plan{config: c, now: now, before: before.Recommended, refused: shares.refused()}
	p.result.State = before.Next(now)
	p.result.Skipped = make([]Skip, 0, pods)
	if !c.IgnoreCapacity {
		p.room = shares.room.Clone()
	}
	p.others(view.Others)
	p.all(order)
	shares.keep(order, p.result.Actions)
	shares.plan(endStep)
	shares.plan(moveStep)
	shares.join(&p.result)
	return p.result
}

// plan is a Result in the making.
type plan struct {
	config  Config
	now     time.Time
	before  PodStates
	room    *Capacity                // nil: not asked
	refused map[string]reason.Reason // why pods do not get memory that they share in place, after they ran out of it
	result  Result

	restarting  RestartHolders
	later       []postponed // until all others are planned: they were refused one before
	secondRound bool        // those of later are planned now
	broken      []*VPA      // those that made a plan panic
}

// all decides about the pods of VPAs.
func (p *plan) all(order []*VPA) {
	for _, v := range order {
		p.look(v)
	}
	for _, v := range order {
		if !slices.Contains(p.broken, v) {
			p.vpa(v)
		}
	}
	p.again()
}

// caught is deferred by what works for one VPA alone. After a panic nothing is done with
// the pods of that VPA, so that it cannot keep others from being served.
func (p *plan) caught(v *VPA) {
	cause := recover()
	if cause == nil {
		return
	}
	p.broken = append(p.broken, v)
	p.result.Problems = append(p.result.Problems, Problem{v.Namespace, v.Name, fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())})
	of := func(s Subject) bool { return s.Namespace == v.Namespace && s.VPA == v.Name }
	p.result.Actions = slices.DeleteFunc(p.result.Actions, func(a Action) bool { return of(a.Subject) })
	p.result.Skipped = slices.DeleteFunc(p.result.Skipped, func(s Skip) bool { return of(s.Subject) })
	p.later = slices.DeleteFunc(p.later, func(r postponed) bool { return r.vpa == v })
	for i := range v.Pods {
		p.skip(v, &v.Pods[i], reason.InternalError)
	}
}

// candidate is a pod that is worth a change.
type candidate struct {
	pod *Pod
	Assessment
}

// vpa decides about the pods of a VPA. A pod is skipped for the first reason on this road, but
// Held takes the place of Unchanged and NoRecommendation:
//
//	VPA.Held          the policy of the VPA is gone: PolicyUnknown
//	mode, status      ModeOff (those in Off and Initial are NoVPA before there is a plan),
//	                  StatusOutdated
//	Assess            is it worth a change? Unchanged, TooYoung, SmallChange, ... (decide.go); for
//	                  evictions and restarts also the protection of the pod (inplace.go): RequirementsNotMet,
//	                  ProtectedFromEviction, CountsAsFailure, OlderRevision
//	Pod.Held          does the rollout of a SizingPolicy hold it? NotInCanary, CoolingDown, ...
//	                  (package rollout); it may still get memory after an out-of-memory kill
//	Situation.Decide  may it be resized now, by its owner, its node and its budget? ModeNotEnabled,
//	                  NoOwner, BelowMinReplicas, NotRunning, Infeasible, Deferred,
//	                  ResizeFailed, WaitingForNode, NoBudget, BudgetSpent
//	Asks              is anything left to ask for? WaitingForNode, and in mode InPlace Deferred,
//	                  Infeasible, ResizeFailed; there another target asks the budget once more
//	grantable         would the node ever take it? ClassWouldChange, StaticCPU
//	mustWait          BackingOff (of what restarts, and of what was asked for in vain), Stabilizing; of what restarts also RolloutUnderWay, WaitingForNode
//	postpone          no reason: what was prevented before goes on behind all others of the
//	                  plan, and is asked for its budget once more
//	blocked           of what restarts: RestartUnderWay
//	fitting           is there room? QuotaFull, TooLargeForNode, NodeFull; a full node is asked
//	                  once for each target all the same, where nothing restarts
//
// An eviction goes another way. It is what mode Recreate does, and with InPlaceOrRecreate
// what takes the place of a resize that is not possible: of grantable, of a node that is too
// small or has been full for five minutes, of a resize that did not come about in time.
//
//	Budget.Denies     NoOwner, BelowMinReplicas, NoBudget, BudgetSpent; in mode Recreate also
//	                  WaitingForNode, Deferred, ResizeFailed of a resize from before
//	VPA.protection    RequirementsNotMet, ProtectedFromEviction, CountsAsFailure, OlderRevision
//	mayNotEvict       RolloutUnderWay, BackingOff, Stabilizing, RestartUnderWay, QuotaFull,
//	                  TooLargeForNode, NodeFull
//
// A pod that starves, or is to leave its node, is evicted whatever else it would get, unless
//
//	staysPut          EvictionNotAllowed, UnderObservation, OutsideWindow, NoRecord, NodeFull; of
//	                  one that is to leave also RecentlyEvicted
//	deniesLeaving     as Budget.Denies, and mayNotEvict
//
// Pods outside of the view (updater/snapshot/vpas.go, updater/plan/planner.go) and changes that fail when the plan runs
// (updater/actuate/run.go) have further reasons.
func (p *plan) vpa(v *VPA) {
	defer p.caught(v)
	var candidates []candidate
	var leaving, starving []*Pod
	for i := range v.Pods {
		pod := &v.Pods[i]
		if v.Held != "" {
			p.skip(v, pod, v.Held)
		} else if v.Mode == Off || v.Mode == Initial {
			p.skip(v, pod, reason.ModeOff)
		} else if v.Outdated {
			p.skip(v, pod, reason.StatusOutdated)
		} else if p.starves(pod) {
			starving = append(starving, pod)
		} else if pod.Leaves() {
			leaving = append(leaving, pod)
		} else if a, held := Assess(v, pod, p.config, p.now), p.held(pod); held != "" && (a.Reason == reason.Unchanged || a.Reason == reason.NoRecommendation) {
			p.skip(v, pod, held) // a part of the change is left out, and nothing is left
		} else if a.Reason != "" {
			p.skip(v, pod, a.Reason)
		} else if held == "" {
			candidates = append(candidates, candidate{pod, a})
		} else if memory := pod.withMemory(); memory != nil {
			candidates = append(candidates, candidate{memory, a})
		} else {
			p.skip(v, pod, held)
		}
	}
	if len(candidates)+len(leaving)+len(starving) == 0 {
		return
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(a.moreUrgent(b.Assessment), cmp.Compare(a.pod.Name, b.pod.Name), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	s := Situation{Mode: v.Mode, Ungated: v.Ungated, Budget: NewBudget(v, p.config), State: p.before, Config: p.config, Now: p.now}
	p.reserve(v, s.Budget)
	for _, pod := range starving {
		p.evict(v, pod, s.Budget, MemoryRefused, cmp.Or(staysPut(v, pod), s.Budget.deniesLeaving(pod)))
	}
	for _, c := range candidates {
		if v.Mode.Resizes() {
			p.inPlace(v, c, s.forPod(v, c.pod))
		} else {
			p.recreate(v, c, s)
		}
	}
	for _, pod := range leaving {
		p.leave(v, pod, s.Budget)
	}
}

// held returns why a rollout holds a pod; empty: it does not. One that may be evicted for a share that is refused is
// held like that eviction.
func (p *plan) held(pod *Pod) reason.Reason {
	if p.refused[pod.UID] != "" && pod.Held != reason.EvictionNotAllowed {
		return cmp.Or(pod.Share.Held, pod.Held)
	}
	return pod.Held
}

// leave plans the eviction of a pod that is to leave its node, unless it is the second of its owner
// within an hour: what leaves and comes back must not do so again and again.
func (p *plan) leave(v *VPA, pod *Pod, b *Budget) {
	denied := staysPut(v, pod)
	if _, lately := p.result.State.Left[v.GroupOf(pod).Key]; denied == "" && (lately || b.leavesCrowd(pod)) {
		denied = reason.RecentlyEvicted
	}
	if p.evict(v, pod, b, NodeCrowded, cmp.Or(denied, b.deniesLeaving(pod))) {
		b.of(pod).crowded = true
	}
}

// staysPut says why a pod is not evicted for what it shares, whatever the budget of its owner is:
// nothing may be evicted, or not at this time, or it is observed, or bound to its node.
func staysPut(v *VPA, pod *Pod) reason.Reason {
	switch {
	case v.Mode == InPlace:
		return reason.EvictionNotAllowed
	case pod.Held != reason.EvictionNotAllowed && pod.Share != nil && pod.Share.Held != "":
		return pod.Share.Held
	case pod.Held == reason.UnderObservation, pod.Held == reason.OutsideWindow, pod.Held == reason.EvictionNotAllowed, pod.Held == reason.NoRecord:
		return pod.Held
	case pod.Bound:
		return reason.NodeFull
	}
	return ""
}

// look sees from the pods of a VPA what came of the last changes, and which of them are being restarted.
func (p *plan) look(v *VPA) {
	defer p.caught(v)
	if v.Held != "" {
		return // its pods get nothing that is recommended
	}
	for i := range v.Pods {
		pod := &v.Pods[i]
		p.result.State.Recommended.carry(p.before, pod, p.now)
		if one, holds := p.result.State.Recommended.Restarting(pod, p.now); holds {
			p.restarting.Add(one, p.shared(v, pod)...)
		}
		if v.Outdated { // nobody knows what new pods should have come with
			continue
		}
		if pause, begins := p.result.State.learn(v.GroupOf(pod).Key, pod, p.now); begins {
			p.result.Backoffs = append(p.result.Backoffs, PodBackoff{subject(v, pod), pause})
		}
	}
}

// others sees which pods of no VPA are being restarted.
func (p *plan) others(pods []Pod) {
	defer p.caught(&VPA{})
	for i := range pods {
		p.result.State.Recommended.carry(p.before, &pods[i], p.now)
		if one, holds := p.result.State.Recommended.Restarting(&pods[i], p.now); holds {
			p.restarting.Add(one, budgets(&pods[i])...)
		}
	}
}

// recreate plans the eviction of a pod whose VPA does not resize.
func (p *plan) recreate(v *VPA, c candidate, s Situation) {
	cause := c.Cause()
	if c.pod.Resize != NotResizing {
		cause = ResizeStuck
	} else if !c.pod.Asks() {
		p.skip(v, c.pod, reason.WaitingForNode)
		return
	}
	p.evict(v, c.pod, s.Budget, cause, s.Evictable(c.pod))
}

// evict plans an eviction unless it is denied already, or something else speaks against it, and reports whether it has.
func (p *plan) evict(v *VPA, pod *Pod, b *Budget, cause Cause, denied reason.Reason) bool {
	if protected := v.protection(pod, true); protected != "" {
		denied = protected
	} else if denied == "" {
		denied = p.mayNotEvict(v, pod)
	}
	if denied != "" {
		p.skip(v, pod, denied)
		return false
	}
	b.Spend(pod)
	if p.room != nil {
		p.room.Keep(pod.Need(), true)
	}
	p.add(v, pod, Action{Evict: true, Cause: cause, Disrupts: pod.Ready})
	return true
}

// mayNotEvict says why the pod must not be evicted now for the sake of its
// workload, or because it would find no place again.
func (p *plan) mayNotEvict(v *VPA, pod *Pod) reason.Reason {
	if why := p.workloadHolds(v, pod); why != "" {
		return why
	}
	if pod.Ready && p.blocked(pod, budgets(pod)) {
		return reason.RestartUnderWay // the API server does not count that pod as away yet
	}
	if p.room == nil {
		return ""
	}
	return noRoom(p.room.Place(pod.Need(), p.config.Autoscaled))
}

// workloadHolds says why nothing that disrupts the pod should happen to its workload
// now. A pod that is not ready is not spared for a rollout: the change may cure it.
func (p *plan) workloadHolds(v *VPA, pod *Pod) reason.Reason {
	g := v.GroupOf(pod)
	record := p.result.State.Owners[g.Key]
	switch {
	case g.Rolling && pod.Ready:
		return reason.RolloutUnderWay
	case record.BacksOff(p.now):
		return reason.BackingOff
	}
	return p.stabilizing(g, pod)
}

// stabilizing says whether the change would undo the last one of the workload too
// soon. What only grows never does (ChangeRecord.Holds).
func (p *plan) stabilizing(g Group, pod *Pod) reason.Reason {
	record, known := p.result.State.Owners[g.Key]
	if known && record.Holds(pod.Change(), p.config.StabilizationWindow, p.now) {
		return reason.Stabilizing
	}
	return ""
}

func (p *plan) add(v *VPA, pod *Pod, a Action) {
	a.Subject, a.Containers = subject(v, pod), pod.Targets()
	a.Owner, a.Change = v.GroupOf(pod).Key, pod.Change()
	for i := range v.Pods {
		if v.Pods[i].Group == pod.Group && v.Pods[i].Created.After(a.Newest) {
			a.Newest = v.Pods[i].Created
		}
	}
	p.result.Actions = append(p.result.Actions, a)
}

func (p *plan) skip(v *VPA, pod *Pod, why reason.Reason) {
	if pod.Share != nil && (why == reason.Unchanged || why == reason.NoRecommendation) {
		why = reason.HasShare
	}
	p.result.Skipped = append(p.result.Skipped, Skip{subject(v, pod), why})
}

func subject(v *VPA, p *Pod) Subject {
	return Subject{Namespace: p.Namespace, VPA: v.Name, Pod: p.Name, UID: p.UID}
}
