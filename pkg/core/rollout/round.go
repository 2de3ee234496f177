package rollout

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// roundLimit is how long a round waits for its next change, so that pods that change one by one
// share a round and its cooldown. Then no other pod changes in it, and it ends when all changes are
// judged.
const roundLimit = time.Hour

// HoldResult is the result of Hold for a workload.
type HoldResult struct {
	State  State     // store it before the first change of a pod if it differs
	Pods   []PodHold // in the order of Workload.Pods
	Evict  bool      // pods that cannot be resized in place may be evicted
	Canary Obstacle  // why a canary is not promoted, empty outside of PhaseCanary
	Next   time.Time // earliest next change: end of cooldown or next window, if known
}

// PodHold is the result of Hold for a pod.
type PodHold struct {
	Free   bool          // the pod may change
	Reason reason.Reason // why it is held, empty if no change is pending
	// MemoryOnly allows a held pod to get more memory after an OOM kill, and no other change. That
	// belongs to no round, unless the pod is under observation: then it renews the note, see
	// Change.Renewed.
	MemoryOnly bool
}

// Hold decides which pods of a workload may change now, before a plan is made.
func Hold(s State, w Workload, set Settings, now time.Time) HoldResult {
	w.StopReason = cmp.Or(w.StopReason, passiveModes[w.Mode])
	h := hold{State: s.clone(), w: &w, set: set, now: now, podHolds: make([]PodHold, len(w.Pods))}
	h.syncPolicy()
	h.adoptChanges()
	if w.StopReason == "" && w.Mode == fleet.Inherit {
		h.finishRound()
		h.decideInherited()
		return h.result()
	}
	if h.round() != nil && h.Phase == PhaseCanary && w.StopReason == "" {
		h.chooseMembers(&w, set.Percentage)
	}
	h.finishRound()
	if h.Phase == PhaseCanary && w.StopReason == "" && h.obstacle() == "" {
		h.setPhase(PhaseFullRollout)
	}
	h.decidePods()
	return h.result()
}

var passiveModes = map[fleet.Mode]reason.Reason{fleet.Observe: reason.Observing, fleet.Recommend: reason.RecommendOnly}

type hold struct {
	State
	w            *Workload
	set          Settings
	now          time.Time
	podHolds     []PodHold
	next         time.Time
	entersCanary bool // this evaluation enters PhaseCanary
}

func (h *hold) result() HoldResult {
	h.ResizeBlocked.set(h.blockedReason(), h.now)
	held := HoldResult{State: h.State, Pods: h.podHolds, Evict: h.canEvict(), Next: h.next}
	if h.Phase == PhaseCanary && h.w.StopReason == "" {
		held.Canary = h.obstacle()
	}
	return held
}

// canEvict excludes mode OneShot and a canary, which do not justify an eviction.
func (h *hold) canEvict() bool {
	return h.set.Recreate && h.w.StopReason == "" && (h.w.Mode == fleet.Auto || h.Phase == PhaseFullRollout)
}

func (h *hold) syncPolicy() {
	if h.set.Hash != "" && h.set.Hash != h.Hash {
		h.restart()
	}
	h.RevertedResources = slices.DeleteFunc(h.RevertedResources, func(r RevertedResources) bool { return r.expired(h.now) })
	if h.w.StopReason != "" {
		return // a pause or an opt-out does not reset the rollout
	}
	h.prune(h.w.Target)
	h.Mode = h.w.Mode
	missing := ""
	if h.set.MetricsMissing {
		missing = NoPrometheus
	}
	h.EvidenceMissing.set(missing, h.now)
	switch {
	case h.Mode != fleet.Canary:
		h.setPhase("")
	case h.Phase == "", h.Phase == PhaseHalted && targetDiffers(h.HaltedTarget, h.w.Target):
		h.Phase, h.entersCanary = PhaseCanary, true
	}
	if h.Phase != PhaseHalted {
		h.HaltedTarget = nil
	} else if len(h.HaltedTarget) == 0 {
		h.HaltedTarget = slices.Clone(h.w.Target)
	}
}

func (h *hold) restart() {
	pending := ""
	if !h.Started.IsZero() || h.StartPending.Reason != "" {
		pending = PolicyChanged
	}
	h.Hash, h.RevertedResources, h.Started = h.set.Hash, nil, time.Time{}
	h.StartPending.set(pending, h.now)
	h.setPhase("")
}

func (h *hold) setPhase(p Phase) { h.Phase, h.Members, h.CanarySince = p, nil, time.Time{} }

// adoptChanges counts changes of the round that a process applied but could not store.
func (h *hold) adoptChanges() {
	r := h.round()
	if r == nil {
		return
	}
	changed, first, last := 0, time.Time{}, time.Time{}
	for i := range h.w.Pods {
		if p := &h.w.Pods[i]; p.isObserved() && !p.Unsent && !p.ObservedSince.Before(r.Time) {
			changed++
			if first.IsZero() || p.ObservedSince.Before(first) {
				first = p.ObservedSince
			}
			last = later(last, p.ObservedSince)
		}
	}
	if !r.begun() && changed > 0 {
		r.Time = first
		h.recordStart(first)
	}
	r.Pods, r.Last = max(r.Pods, changed), later(r.Last, last)
	if h.Phase == PhaseCanary && h.CanarySince.IsZero() && r.begun() {
		h.CanarySince = r.Time
		if h.entersCanary { // in mid-round: earlier changes do not count for the canary
			h.CanarySince = h.now
		}
	}
}

// decideInherited holds pods only for policy and schedule. The VPA decides the rest.
func (h *hold) decideInherited() {
	held := h.policyReason()
	if open := h.checkWindow(); !open {
		held = cmp.Or(held, reason.OutsideWindow)
	}
	if held == "" && h.round() == nil && h.anyPod(func(p *Pod) bool { return p.Due }) {
		h.openRound(h.now) // stored before the first change, so the change on the pod stays valid even if later writes fail
	}
	for i := range h.podHolds {
		if h.podHolds[i] = (PodHold{Free: held == "", MemoryOnly: true}); h.w.Pods[i].Due {
			h.podHolds[i].Reason = held
		}
	}
}

// checkWindow reports whether the schedule is open, and records a closed window that holds a pod.
func (h *hold) checkWindow() bool {
	open, blocked := h.set.Schedule.Open(h.now), ""
	if !open && h.anyPod(func(p *Pod) bool { return p.Due }) {
		blocked = string(reason.OutsideWindow)
	}
	h.ScheduleBlocked.set(blocked, h.now)
	if !open {
		h.setNext(h.now)
	}
	return open
}

func (h *hold) setNext(from time.Time) { h.next, _ = h.set.Schedule.NextOpening(from) }

// finishRound ends the round when all changes have a verdict and no selected pod is due or waits
// for its node, or at its time limit. A round without any change is discarded.
func (h *hold) finishRound() {
	r := h.round()
	if r == nil || h.countUnjudged() > 0 || h.w.StopReason == reason.PolicyUnknown { // an unknown policy has no cooldown setting
		return
	}
	continues := h.w.StopReason == "" && h.canContinue()
	hasMore := h.anyPod(func(p *Pod) bool {
		waits := p.Deferred && p.isObserved() && !p.Terminating && !p.ObservedSince.Before(r.Time)
		return waits || continues && p.Due && h.selects(p)
	})
	switch {
	case hasMore && !h.timedOut():
	case !r.begun():
		h.Rounds = h.Rounds[1:]
	default:
		h.closeRound(cmp.Or(r.SoFar, Superseded), h.set.Cooldown, h.now)
	}
}

func (r *Round) begun() bool { return r.Pods > 0 || r.SoFar != "" }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (h *hold) timedOut() bool {
	r := h.round()
	return r != nil && r.begun() && !h.now.Before(later(r.Time, r.Last).Add(roundLimit))
}

func (h *hold) canContinue() bool {
	r := h.round()
	return h.Mode != fleet.OneShot || r == nil || !r.begun()
}

func (h *hold) countUnjudged() (count int) {
	for i := range h.w.Pods {
		if h.w.Pods[i].isUnjudged() {
			count++
		}
	}
	return count
}

// blockedReason returns why nodes block all selected pods, or empty if one can change.
func (h *hold) blockedReason() string {
	deferred, infeasible, changeable := false, false, false
	for i := range h.w.Pods {
		switch p := &h.w.Pods[i]; {
		case !h.selects(p) || p.Terminating || h.Phase != PhaseCanary && !p.Due:
		case p.Deferred:
			deferred = true
		case p.Infeasible:
			infeasible = true
		default:
			changeable = true
		}
	}
	switch {
	case changeable:
		return ""
	case deferred && infeasible:
		return "PodsDeferredAndInfeasible"
	case deferred:
		return "PodsDeferred"
	case infeasible:
		return "PodsInfeasible"
	}
	return ""
}

func (h *hold) decidePods() {
	held, free := h.workloadReason(), 0
	if held == "" {
		if free = h.remainingChanges(); free > 0 && h.Phase == PhaseCanary && h.round() == nil && h.anyPod(func(p *Pod) bool { return p.Due && p.Eligible() }) {
			h.chooseMembers(h.w, h.set.Percentage)
		}
	}
	var candidates []int
	for i := range h.w.Pods {
		p := &h.w.Pods[i]
		h.podHolds[i].MemoryOnly = h.w.StopReason == "" && !p.Node.memoryGrowthBlocked()
		switch why := h.podReason(p); {
		case !p.Due:
			h.podHolds[i].Reason = p.OmittedReason
		case p.isObserved() && h.w.StopReason == "":
			h.podHolds[i].Reason = reason.UnderObservation
		case held != "":
			h.podHolds[i].Reason = held
		case why != "":
			h.podHolds[i].Reason = why
		default:
			candidates = append(candidates, i)
		}
	}
	slices.SortFunc(candidates, func(a, b int) int {
		p, q := &h.w.Pods[a], &h.w.Pods[b]
		return cmp.Or(p.SkippedAt.Compare(q.SkippedAt), h.w.compare(p, q))
	})
	for n, i := range candidates {
		if n < free {
			h.podHolds[i].Free = true
		} else {
			h.podHolds[i].Reason = reason.UnderObservation
		}
	}
	if free > 0 && len(candidates) > 0 && h.round() == nil {
		h.openRound(h.now)
	}
}

func (h *hold) anyPod(holds func(*Pod) bool) bool {
	for i := range h.w.Pods {
		if holds(&h.w.Pods[i]) {
			return true
		}
	}
	return false
}

func (h *hold) workloadReason() reason.Reason {
	if h.w.StopReason != "" {
		h.ScheduleBlocked.set("", h.now)
		return h.w.StopReason
	}
	open := h.checkWindow()
	until, active := h.cooldown(h.set.Cooldown, h.now)
	if active {
		h.setNext(until)
	}
	switch paced := h.policyReason(); {
	case paced == reason.FuseTripped: // first, because it needs action of a user
		return paced
	case h.Phase == PhaseHalted:
		h.next = time.Time{}
		return reason.Halted
	case !open:
		return reason.OutsideWindow
	case h.w.ShortHistory:
		return reason.ShortHistory
	case active:
		return reason.CoolingDown
	default:
		return paced
	}
}

func (h *hold) policyReason() reason.Reason {
	switch {
	case h.w.FuseTripped:
		return reason.FuseTripped
	case h.w.StartBlocked && h.Started.IsZero():
		return reason.StartRate
	}
	return ""
}

func (h *hold) podReason(p *Pod) reason.Reason {
	switch {
	case !h.selects(p):
		return reason.NotInCanary
	case !p.Eligible():
		return p.ineligible()
	case h.w.RollingOut && p.Ready:
		return reason.RolloutInProgress
	}
	why := p.Node.growthBlocked(p.Grows)
	// A kubelet rejects growth beyond its allocatable resources, even if only a terminated init
	// container needs them.
	if why == "" && p.Grows != [resources.Kinds]bool{} && !p.TotalRequests.Fits(p.Node.Size) && !h.canEvict() {
		return reason.TooLargeForNode
	}
	return why
}

func (h *hold) remainingChanges() int {
	limit := h.set.MaxConcurrent
	switch {
	case h.timedOut() || !h.canContinue():
		return 0
	case h.Mode == fleet.OneShot:
		limit = 1
	case limit <= 0:
		return len(h.w.Pods)
	}
	return max(0, limit-h.countUnjudged())
}
