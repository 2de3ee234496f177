// Package olddisruption is a frozen copy of pkg/core/disruption, for package oldview. It is temporary and goes
// with it.
package olddisruption

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
	Evict      bool                     // else resize
	Cause      Cause                    // why
	Containers []policy.ContainerTarget // what the pod would get; containers left alone are missing
	Restarts   bool                     // a resize restarts a container, so it is a disruption
	// Restart is what State.Record remembers of a resize that restarts a ready
	// pod; else the zero value.
	Restart Restart
	// MayEvict allows to evict the pod at once if the resize is refused, as the mode and
	// the budget do.
	MayEvict bool
	Disrupts bool // the pod is ready, and would not be for a while; with MayEvict only if it comes to that

	OOMResize bool // a resize that gives memory to a pod that does not work for want of it

	// What State.Record remembers: whose pod it is, what is changed, and when the
	// newest pod of the owner was created.
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

// Plan decides about every pod of the view: each is in one Action or in one
// Skip. VPAs come in the order of namespace and name, the pods of a VPA the most
// urgent first; what is put off comes last. It changes neither the view nor the state it is given.
func Plan(view View, before State, c Config, now time.Time) Result {
	p := plan{config: c, now: now, before: before}
	p.result.State = before.Next(now)
	if view.Room != nil {
		p.room = view.Room.Clone()
	}
	order := make([]*VPA, len(view.VPAs))
	pods := 0
	for i := range view.VPAs {
		order[i] = &view.VPAs[i]
		pods += len(order[i].Pods)
	}
	p.others(view.Others)
	p.result.Skipped = make([]Skip, 0, pods)
	slices.SortStableFunc(order, func(a, b *VPA) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	p.all(order)
	return p.result
}

// plan is a Result in the making.
type plan struct {
	config Config
	now    time.Time
	before State
	room   *Capacity // nil: not asked
	result Result

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
//	mode, status      ModeOff (those in Off and Initial are NoVPA before there is a plan),
//	                  StatusOutdated
//	Assess            is it worth a change? Unchanged, TooYoung, SmallChange, ... (assess.go); for
//	                  evictions and restarts also the protection of the pod (protect.go): RequirementsNotMet,
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
// What view/assign.go cannot give to a VPA, and what is refused while a plan is carried out
// (updater/pass.go), have reasons of their own, too.
func (p *plan) vpa(v *VPA) {
	defer p.caught(v)
	var candidates []candidate
	var leaving, starving []*Pod
	for i := range v.Pods {
		pod := &v.Pods[i]
		if v.Mode == Off || v.Mode == Initial {
			p.skip(v, pod, reason.ModeOff)
		} else if v.Outdated {
			p.skip(v, pod, reason.StatusOutdated)
		} else if p.starves(pod) {
			starving = append(starving, pod)
		} else if pod.Leaves {
			leaving = append(leaving, pod)
		} else if a := Assess(v, pod, p.config, p.now); pod.Held != "" && (a.Reason == reason.Unchanged || a.Reason == reason.NoRecommendation) {
			p.skip(v, pod, pod.Held) // a part of the change is left out, and nothing is left
		} else if a.Reason != "" {
			p.skip(v, pod, a.Reason)
		} else if pod.Held == "" {
			candidates = append(candidates, candidate{pod, a})
		} else if memory := pod.withMemory(); memory != nil {
			candidates = append(candidates, candidate{memory, a})
		} else {
			p.skip(v, pod, pod.Held)
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
	case pod.Held == reason.UnderObservation, pod.Held == reason.OutsideWindow, pod.Held == reason.EvictionNotAllowed, pod.Held == reason.NoRecord:
		return pod.Held
	case pod.Bound:
		return reason.NodeFull
	}
	return ""
}

// look sees from the pods of a VPA what came of the last changes, and which of them
// are being restarted.
func (p *plan) look(v *VPA) {
	defer p.caught(v)
	for i := range v.Pods {
		pod := &v.Pods[i]
		p.result.State.carry(p.before, pod, p.now)
		if one, holds := p.result.State.Restarting(pod, p.now); holds {
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
		p.result.State.carry(p.before, &pods[i], p.now)
		if one, holds := p.result.State.Restarting(&pods[i], p.now); holds {
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

// evict plans an eviction unless it is denied already, or something else
// speaks against it, and reports whether it has.
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
	a.Subject, a.Containers = subject(v, pod), pod.Fitted()
	a.Owner, a.Change = v.GroupOf(pod).Key, pod.Change()
	for i := range v.Pods {
		if v.Pods[i].Group == pod.Group && v.Pods[i].Created.After(a.Newest) {
			a.Newest = v.Pods[i].Created
		}
	}
	p.result.Actions = append(p.result.Actions, a)
}

func (p *plan) skip(v *VPA, pod *Pod, why reason.Reason) {
	p.result.Skipped = append(p.result.Skipped, Skip{subject(v, pod), why})
}

func subject(v *VPA, p *Pod) Subject {
	return Subject{Namespace: p.Namespace, VPA: v.Name, Pod: p.Name, UID: p.UID}
}
