// Package disruption decides which running pods change, how and in which order, and why all others
// are skipped.
//
// Plan takes a View of VPAs with their pods, the State of the previous plan, and a Config. It
// returns ordered Actions, Skips with a Reason, and the State for the next plan. The steps are also
// available one by one: Assess rates whether and how urgently a pod needs a change, Budget limits
// the unavailable pods of an owner, and DecisionInput.Decide checks an in-place resize.
//
// Two rules have priority. A pod is disrupted only if its resources would change. Resizes and
// evictions use one budget and are planned together, the most urgent first. The package performs no
// action, does not wait between actions, and keeps no state outside of State.
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

// Subject identifies one pod and its VPA in the same namespace.
type Subject struct {
	Namespace, VPA, Pod, UID string
}

// Action is one planned change to one pod.
type Action struct {
	Subject
	Stage      Stage
	Evict      bool // otherwise resize
	Cause      Cause
	Containers []policy.ContainerTarget // targets; skipped containers are absent
	Restarts   bool                     // a resize restarts a container, so it is a disruption
	// Restart is zero except for a resize that restarts a ready pod. State.Record stores it.
	Restart Restart
	// MayEvict allows an immediate eviction if the resize is refused. Mode and budget permit it.
	MayEvict bool
	Disrupts bool // a ready pod becomes not ready; with MayEvict only if it is evicted

	OOMResize bool // adds memory after an out-of-memory kill and disrupts no working pod
	Shrinks   bool // the share lowers a request

	Share *Action       // the share that the same resize applies; nil: none
	Skip  reason.Reason // why the other part (share or recommendation) is left out, or empty

	// Recorded by State.Record: owner key, change, and creation time of the owner's newest pod.
	Owner  string
	Change Change
	Newest time.Time
}

// Skip is a pod that the plan does not change.
type Skip struct {
	Subject
	Reason reason.Reason
}

// Result is a plan.
type Result struct {
	Actions  []Action // in order of execution
	Skipped  []Skip
	Backoffs []PodBackoff // to be stored on pods for other processes
	Problems []Problem
	State    State
}

// Problem is a panic while planning one VPA, whose pods are skipped with InternalError. Without a
// name, it is a panic while reading the pods without a VPA.
type Problem struct {
	Namespace, VPA string
	Panic          string // panic value and stack
}

// PodBackoff is the backoff to store on a pod that was recreated without the change of the
// preceding eviction. A later plan reads it from Pod.Persisted.
type PodBackoff struct {
	Subject
	Backoff
}

// Plan returns a decision for every pod of the view: one Skip, or Actions. It does not modify the
// view or the previous state. The steps draw from one Capacity, in this order:
//
//  1. revert shares that did harm (Share.Cause ShareReverted)
//  2. apply recommendations (plan.planVPA), VPAs by namespace and name, pods of a VPA by urgency,
//     postponed resizes last
//  3. set pods that no longer share to their peak (ShareEnded)
//  4. move all other shares (Shared), shrinking ones first
//  5. join both parts of a pod into one action (sharePlan.join)
//
// Shares move in place if the node has room, and need no budget (sharePlan). If both parts are
// skipped, the reason of the recommendation is reported, unless the pod already has its
// recommendation.
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
	p := plan{config: c, now: now, previous: before.Recommended, refused: shares.refused()}
	p.result.State = before.Next(now)
	p.result.Skipped = make([]Skip, 0, pods)
	if !c.IgnoreCapacity {
		p.room = shares.room.Clone()
	}
	p.observeOthers(view.Others)
	p.planVPAs(order)
	shares.reserveActions(order, p.result.Actions)
	shares.plan(endStep)
	shares.plan(moveStep)
	shares.join(&p.result)
	return p.result
}

type plan struct {
	config   Config
	now      time.Time
	previous PodStates
	room     *Capacity                // nil: not checked
	refused  map[string]reason.Reason // by UID: why a pod gets no more shared memory in place after an out-of-memory kill
	result   Result

	restarting  RestartHolders
	postponed   []postponedResize // resizes that were prevented before, planned after all others
	secondRound bool
	panicked    []*VPA
}

func (p *plan) planVPAs(order []*VPA) {
	for _, v := range order {
		p.observeVPA(v)
	}
	for _, v := range order {
		if !slices.Contains(p.panicked, v) {
			p.planVPA(v)
		}
	}
	p.planPostponed()
}

// recoverVPA turns a panic into a Problem and skips all pods of the VPA.
func (p *plan) recoverVPA(v *VPA) {
	cause := recover()
	if cause == nil {
		return
	}
	p.panicked = append(p.panicked, v)
	p.result.Problems = append(p.result.Problems, Problem{v.Namespace, v.Name, fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())})
	of := func(s Subject) bool { return s.Namespace == v.Namespace && s.VPA == v.Name }
	p.result.Actions = slices.DeleteFunc(p.result.Actions, func(a Action) bool { return of(a.Subject) })
	p.result.Skipped = slices.DeleteFunc(p.result.Skipped, func(s Skip) bool { return of(s.Subject) })
	p.postponed = slices.DeleteFunc(p.postponed, func(r postponedResize) bool { return r.vpa == v })
	for i := range v.Pods {
		p.skip(v, &v.Pods[i], reason.InternalError)
	}
}

type candidate struct {
	pod *Pod
	Assessment
}

// planVPA plans all pods of a VPA. A pod is skipped for the first reason that applies, except that
// Held replaces Unchanged and NoRecommendation:
//
//	VPA.Held          the policy of the VPA is gone: PolicyUnknown
//	mode, status      ModeOff (pods in Off and Initial are NoVPA before planning), StatusOutdated
//	Assess            is a change needed? Unchanged, TooYoung, SmallChange, ... (decide.go). For
//	                  evictions and restarts also the protection of the pod (inplace.go): RequirementsNotMet,
//	                  ProtectedFromEviction, CountsAsFailure, OlderRevision
//	Pod.Held          does the rollout of a SizingPolicy hold it? NotInCanary, CoolingDown, ...
//	                  (package rollout). It may still get memory after an out-of-memory kill
//	Decide            do owner, node and budget allow a resize now? ModeNotEnabled, NoOwner,
//	                  BelowMinReplicas, NotRunning, Infeasible, Deferred, ResizeFailed,
//	                  WaitingForNode, NoBudget, BudgetSpent
//	ChangesSpec       is there anything to request? WaitingForNode, and in mode InPlace Deferred,
//	                  Infeasible, ResizeFailed. In InPlace a new target needs the budget again
//	grantablePart     can the node ever grant it? ClassWouldChange, StaticCPU
//	resizeBlocker     BackingOff (restarts, and requests that failed before), Stabilizing. For restarts
//	                  also RolloutInProgress, WaitingForNode
//	postpone          no reason: a resize that was prevented before is planned after all others,
//	                  and needs the budget again
//	blocked           restarts only: RestartInProgress
//	fitting           is there room? QuotaFull, TooLargeForNode, NodeFull. Without a restart, each
//	                  target is requested once even if the node is full; a share is not
//
// Evictions take another path. Mode Recreate evicts. InPlaceOrRecreate evicts if a resize is not
// possible: not grantable, the node is too small or full for five minutes, or a resize timed out.
//
//	Budget.Denies     NoOwner, BelowMinReplicas, NoBudget, BudgetSpent. In mode Recreate also
//	                  WaitingForNode, Deferred, ResizeFailed of an earlier resize
//	VPA.protection    RequirementsNotMet, ProtectedFromEviction, CountsAsFailure, OlderRevision
//	evictionBlocker   RolloutInProgress, BackingOff, Stabilizing, RestartInProgress, QuotaFull,
//	                  TooLargeForNode, NodeFull
//
// A pod that is starved of shared memory, or leaves its node, is evicted independent of its
// recommendation, except for
//
//	shareEvictionBlocker  EvictionNotAllowed, UnderObservation, OutsideWindow, NoRecord, NodeFull. For
//	                      a pod that leaves also RecentlyEvicted
//	deniesShareEviction   as Budget.Denies, and evictionBlocker
//
// Pods outside of the view (updater/snapshot/vpas.go, updater/plan/planner.go) and actions that
// fail (updater/actuate/run.go) have further reasons.
func (p *plan) planVPA(v *VPA) {
	defer p.recoverVPA(v)
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
		} else if p.mustEvictStarved(pod) {
			starving = append(starving, pod)
		} else if pod.Leaves() {
			leaving = append(leaving, pod)
		} else if a, held := Assess(v, pod, p.config, p.now), p.holdReason(pod); held != "" && (a.Reason == reason.Unchanged || a.Reason == reason.NoRecommendation) {
			p.skip(v, pod, held) // a rollout omits part of the change, and nothing remains
		} else if a.Reason != "" {
			p.skip(v, pod, a.Reason)
		} else if held == "" {
			candidates = append(candidates, candidate{pod, a})
		} else if memory := pod.onlyOOMMemory(); memory != nil && v.Mode.Resizes() {
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
	s := DecisionInput{Mode: v.Mode, Ungated: v.Ungated, Budget: NewBudget(v, p.config), State: p.previous, Config: p.config, Now: p.now}
	p.chargeRestarting(v, s.Budget)
	for _, pod := range starving {
		p.evict(v, pod, s.Budget, MemoryRefused, cmp.Or(shareEvictionBlocker(v, pod), s.Budget.deniesShareEviction(pod)))
	}
	for _, c := range candidates {
		if v.Mode.Resizes() {
			p.inPlace(v, c, s.forPod(v, c.pod)) // adds a resize, an eviction or a skip
		} else {
			p.recreate(v, c, s)
		}
	}
	for _, pod := range leaving {
		p.planLeaving(v, pod, s.Budget)
	}
}

// holdReason returns why a rollout holds a pod, or empty. If the node refused the pod's share, the
// pod may be evicted for it, so the reason that holds the share comes first.
func (p *plan) holdReason(pod *Pod) reason.Reason {
	if p.refused[pod.UID] != "" && pod.Held != reason.EvictionNotAllowed {
		return cmp.Or(pod.Share.Held, pod.Held)
	}
	return pod.Held
}

// planLeaving plans the eviction of a pod that leaves its node, at most one per owner and hour. The
// limit prevents repeated evictions of pods that return to the node.
func (p *plan) planLeaving(v *VPA, pod *Pod, b *Budget) {
	denied := shareEvictionBlocker(v, pod)
	if _, lately := p.result.State.LastCrowdEviction[v.GroupOf(pod).Key]; denied == "" && (lately || b.evictsCrowded(pod)) {
		denied = reason.RecentlyEvicted
	}
	if p.evict(v, pod, b, NodeCrowded, cmp.Or(denied, b.deniesShareEviction(pod))) {
		b.ownerOf(pod).evictsCrowded = true
	}
}

// shareEvictionBlocker returns why a pod must not be evicted for its share, except for the budget.
func shareEvictionBlocker(v *VPA, pod *Pod) reason.Reason {
	switch {
	case v.Mode == InPlace:
		return reason.EvictionNotAllowed
	case pod.Held != reason.EvictionNotAllowed && pod.Share != nil && pod.Share.Held != "":
		return pod.Share.Held
	case pod.Held == reason.UnderObservation, pod.Held == reason.OutsideWindow, pod.Held == reason.EvictionNotAllowed, pod.Held == reason.NoRecord:
		return pod.Held
	case pod.NodeBound:
		return reason.NodeFull
	}
	return ""
}

// observeVPA records the outcome of earlier changes, and the pods that are being restarted.
func (p *plan) observeVPA(v *VPA) {
	defer p.recoverVPA(v)
	if v.Held != "" {
		return // its pods get no recommendation
	}
	for i := range v.Pods {
		pod := &v.Pods[i]
		p.result.State.Recommended.carry(p.previous, pod, p.now)
		if one, holds := p.result.State.Recommended.Restarting(pod, p.now); holds {
			p.restarting.Add(one, p.sharedKeys(v, pod)...)
		}
		if v.Outdated { // the expected resources of new pods are unknown
			continue
		}
		if pause, begins := p.result.State.observeOutcome(v.GroupOf(pod).Key, pod, p.now); begins {
			p.result.Backoffs = append(p.result.Backoffs, PodBackoff{subject(v, pod), pause})
		}
	}
}

func (p *plan) observeOthers(pods []Pod) {
	defer p.recoverVPA(&VPA{})
	for i := range pods {
		p.result.State.Recommended.carry(p.previous, &pods[i], p.now)
		if one, holds := p.result.State.Recommended.Restarting(&pods[i], p.now); holds {
			p.restarting.Add(one, budgetKeys(&pods[i])...)
		}
	}
}

func (p *plan) recreate(v *VPA, c candidate, s DecisionInput) {
	cause := c.Cause()
	if c.pod.Resize != NotResizing {
		cause = ResizeStuck
	} else if !c.pod.ChangesSpec() {
		p.skip(v, c.pod, reason.WaitingForNode)
		return
	}
	p.evict(v, c.pod, s.Budget, cause, s.Evictable(c.pod))
}

// evict plans an eviction and reports whether it did. Any reason against it skips the pod.
func (p *plan) evict(v *VPA, pod *Pod, b *Budget, cause Cause, denied reason.Reason) bool {
	if protected := v.protection(pod, true); protected != "" {
		denied = protected
	} else if denied == "" {
		denied = p.evictionBlocker(v, pod)
	}
	if denied != "" {
		p.skip(v, pod, denied)
		return false
	}
	b.Spend(pod)
	if p.room != nil {
		p.room.Reserve(pod.Need(), true)
	}
	p.add(v, pod, Action{Evict: true, Cause: cause, Disrupts: pod.Ready})
	return true
}

func (p *plan) evictionBlocker(v *VPA, pod *Pod) reason.Reason {
	if why := p.workloadBlocker(v, pod); why != "" {
		return why
	}
	if pod.Ready && p.blocked(pod, budgetKeys(pod)) {
		return reason.RestartInProgress // the API server still counts that pod as available
	}
	if p.room == nil {
		return ""
	}
	return roomReason(p.room.CheckPlacement(pod.Need(), p.config.Autoscaled))
}

// workloadBlocker ignores a rollout if the pod is not ready, because the change may repair it.
func (p *plan) workloadBlocker(v *VPA, pod *Pod) reason.Reason {
	g := v.GroupOf(pod)
	record := p.result.State.Owners[g.Key]
	switch {
	case g.Rolling && pod.Ready:
		return reason.RolloutInProgress
	case record.BacksOff(p.now):
		return reason.BackingOff
	}
	return p.stabilizing(g, pod)
}

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
