package disruption

import (
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// inPlace plans a resize, or an eviction if a resize was not completed or is not possible.
func (p *plan) inPlace(v *VPA, c candidate, s DecisionInput) {
	decision, why := s.Decide(c.pod)
	cause := c.Cause()
	switch decision {
	case Evict:
		p.evict(v, c.pod, s.Budget, ResizeStuck, "")
		return
	case Proceed:
		why = reason.WaitingForNode // if the spec already has the target
	case JustRefused, Resizing:
		cause = Retry
	default:
		p.skip(v, c.pod, s.skipReason(why))
		return
	}
	if !c.pod.ChangesSpec() {
		if decision == Proceed && p.resizeIgnored(s, c.pod) {
			p.evict(v, c.pod, s.Budget, ResizeStuck, s.Budget.Denies(c.pod))
			return
		}
		if decision == JustRefused { // the refused resize had the same target
			put(&p.result.State.Recommended.Refused, c.pod.UID, requests(c.pod.Targets()))
		}
		p.skip(v, c.pod, s.skipReason(why))
		return
	}
	denied := s.Budget.Denies(c.pod)
	if denied != "" && !s.needsNoBudget(c.pod) {
		p.skip(v, c.pod, denied)
		return
	}
	p.resize(v, c.pod, s, denied, cause)
}

// resizeIgnored reports whether the kubelet ignored an accepted resize for InProgressTimeout.
func (p *plan) resizeIgnored(s DecisionInput, pod *Pod) bool {
	return s.Mode == InPlaceOrRecreate && pod.ResizeUnreported() && p.now.Sub(p.previous.Since(pod, p.now)) > InProgressTimeout
}

// resize plans a resize that passed the budget; denied is Budget.Denies for an eviction.
func (p *plan) resize(v *VPA, asked *Pod, s DecisionInput, denied reason.Reason, cause Cause) {
	evicts := s.Mode == InPlaceOrRecreate
	pod, why := grantablePart(asked)
	if why != "" {
		p.evictInstead(v, asked, s, cause, why, evicts)
		return
	}
	restarts, oomResize := pod.WouldRestart(), pod.IsOOMResize()
	if why := p.resizeBlocker(v, pod); why != "" {
		p.skip(v, pod, why)
		return
	}
	if (restarts || !s.needsNoBudget(pod)) && !oomResize && p.postpone(postponedResize{v, asked, s, cause}) {
		return
	}
	if restarts && !oomResize && p.blocked(pod, p.sharedKeys(v, pod)) {
		p.skip(v, pod, reason.RestartInProgress)
		return
	}
	pod, need, answer := p.fitting(pod)
	evicts = evicts && pod == asked // a partial resize does not justify an eviction
	if answer != RoomFits {
		evicts = evicts && answer != RoomOverQuota && (answer == RoomTooLarge || p.crowdedFor(pod) > DeferredTimeout)
		p.evictInstead(v, pod, s, ResizeStuck, roomReason(answer), evicts)
		return
	}
	mayEvict := denied == "" && evicts && p.evictionBlocker(v, pod) == ""
	s.Budget.Spend(pod)
	if p.room != nil {
		p.room.Reserve(need, false)
	}
	a := Action{Cause: cause, OOMResize: oomResize, Restarts: restarts, MayEvict: mayEvict, Disrupts: pod.Ready && (restarts || mayEvict)}
	if restarts && !oomResize {
		p.restarting.Add(RestartHolder{UID: pod.UID}, p.sharedKeys(v, pod)...)
		if pod.Ready {
			a.Restart = Restart{At: p.now, Count: int(pod.Restarts)}
		}
	}
	p.add(v, pod, a)
}

func (p *plan) resizeBlocker(v *VPA, pod *Pod) reason.Reason {
	switch {
	case p.previous.BacksOff(pod, p.now):
		return reason.BackingOff
	case pod.IsOOMResize():
		return ""
	case !pod.WouldRestart():
		return p.stabilizing(v.GroupOf(pod), pod)
	}
	if why := p.workloadBlocker(v, pod); why != "" {
		return why
	}
	if p.restartRequested(pod) {
		return reason.WaitingForNode
	}
	return ""
}

// fitting returns the pod with the change that fits now, with CapToRoom a part of the growth.
func (p *plan) fitting(pod *Pod) (*Pod, Need, RoomResult) {
	need := pod.Need()
	if p.room == nil {
		return pod, need, RoomFits
	}
	answer := p.room.CheckResize(need)
	if answer == RoomFits {
		return pod, need, answer
	}
	if part := p.fittingPart(pod); part != nil {
		return part, part.Need(), RoomFits
	}
	if answer == RoomFull && !pod.WouldRestart() && !p.config.CapToRoom && !p.config.onlyFitting && !p.previous.Requested(pod) {
		// The kubelet grants it as soon as there is room, before the next iteration could. Restarts
		// are excluded: they would happen later without a check of the budgets.
		need.Node = ""
		answer = p.room.CheckResize(need)
	}
	return pod, need, answer
}

// fittingPart returns a copy that grows by the available room, or nil below the threshold.
func (p *plan) fittingPart(pod *Pod) *Pod {
	if !p.config.CapToRoom {
		return nil
	}
	part := pod.PartialChange(p.room.FittingFraction(pod.Need()))
	need := part.Need()
	if p.room.CheckResize(need) != RoomFits {
		return nil
	}
	for k := range resources.Kind(resources.Kinds) {
		if grown := need.After.Value(k) > need.Before.Value(k); grown && Relative(k, need.Before.Value(k), need.After.Value(k)) >= p.config.Threshold {
			return part
		}
	}
	return nil
}

// After returns the container with its target in the spec.
func (c *Container) After() policy.Container {
	after := c.Spec
	if c.Observed {
		after.Requests, after.Limits = after.Requests.Override(c.Target.Requests), after.Limits.Override(c.Target.Limits)
	}
	return after
}

// Need returns the capacity that the change of a pod needs.
func (p *Pod) Need() Need {
	n := Need{Namespace: p.Namespace, Traits: p.Traits, Node: p.Node, NodeBound: p.NodeBound, Leaves: p.Leaves(), Starved: p.starved(), SizedByVPA: p.SizedByVPA, Before: p.Footprint, After: p.Footprint}
	for i := range p.Containers {
		c := &p.Containers[i]
		after := c.After()
		for k := range resources.Kind(resources.Kinds) {
			has := max(c.Spec.Requests.Value(k), c.Actual.Requests.Value(k))
			if by := after.Requests.Value(k) - has; by != 0 {
				n.After = n.After.With(k, n.After.Value(k).Add(by))
			}
			if by := after.Limits.Value(k) - c.Spec.Limits.Value(k); by > 0 {
				n.LimitGrowth = n.LimitGrowth.With(k, n.LimitGrowth.Value(k).Add(by))
			}
			n.Limits = n.Limits.With(k, n.Limits.Value(k).Add(after.Limits.Value(k)))
		}
	}
	n.NewPod = n.After
	for i := range p.peak() { // a new pod starts with its peak, not its share
		whole := p.Containers[i]
		whole.Target = p.Share.Peak[i]
		after, shared := whole.After().Requests, p.Containers[i].After().Requests
		for k := range resources.Kind(resources.Kinds) {
			n.NewPod = n.NewPod.With(k, n.NewPod.Value(k).Add(after.Value(k)-shared.Value(k)))
		}
	}
	// Init containers ran earlier: they reserve their minimum once, not in addition to others.
	for k := range resources.Kind(resources.Kinds) {
		if least := p.InitFootprint.Value(k); least > 0 {
			n.Before, n.After, n.NewPod = n.Before.With(k, max(n.Before.Value(k), least)), n.After.With(k, max(n.After.Value(k), least)), n.NewPod.With(k, max(n.NewPod.Value(k), least))
		}
	}
	return n
}

func roomReason(a RoomResult) reason.Reason {
	switch a {
	case RoomFull:
		return reason.NodeFull
	case RoomTooLarge:
		return reason.TooLargeForNode
	case RoomOverQuota:
		return reason.QuotaFull
	}
	return ""
}

// grantablePart returns the pod with the part of its change that the node can ever grant in place,
// or a reason. A resize cannot change the QoS class, nor the CPU under the static policy. A pod on
// such a node that needs memory gets memory alone.
func grantablePart(p *Pod) (*Pod, reason.Reason) {
	switch {
	case p.ChangesClass():
		return nil, reason.ClassWouldChange
	case !p.CPURefused():
		return p, ""
	}
	memory := p.WithoutCPUChange()
	if p.WantsOOMResize() && memory.ChangesSpec() && !memory.CPURefused() {
		return memory, ""
	}
	return nil, reason.StaticCPU
}

func (p *plan) evictInstead(v *VPA, pod *Pod, s DecisionInput, cause Cause, why reason.Reason, evicts bool) {
	if !evicts {
		p.skip(v, pod, s.skipReason(why))
		return
	}
	p.evict(v, pod, s.Budget, cause, s.Budget.Denies(pod))
}

func (p *plan) crowdedFor(pod *Pod) time.Duration {
	since, known := p.previous.Crowded[pod.UID]
	if !known {
		since = p.now
	}
	p.result.State.Recommended.Crowded[pod.UID] = since
	return p.now.Sub(since)
}

// QuickOOM reports whether a container ran out of memory less than threshold after its start and
// less than threshold ago.
func (p *Pod) QuickOOM(threshold time.Duration, now time.Time) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Observed && !c.Off && !c.OOM.Ended.IsZero() &&
			c.OOM.Ended.Sub(c.OOM.Started) < threshold && now.Sub(c.OOM.Ended) < threshold
	})
}

// IsOOMResize reports whether a resize adds memory after an out-of-memory kill and disrupts no
// working pod. The last termination of a growing container was an out-of-memory kill, and either
// the pod is not ready or the resize restarts nothing. Such a resize
//
//   - needs neither budget (DecisionInput.needsNoBudget) nor PodDisruptionBudget (package actuate),
//   - waits neither for the backoff of its workload, nor the stabilization window or other restarts,
//     and is not postponed (plan.resizeBlocker, plan.resize),
//   - requests only memory if the node does not change CPU (DecisionInput.nodeRefuses, grantablePart),
//   - is exempt from the rate limits of disruptions. If a pod that is not ready is evicted instead,
//     only its growth counts against quotas (Need.Starved).
//
// All other conditions still apply. The change must be needed: out of bounds, or killed soon after
// the start. The pod must have an owner and not be pending. No other resize that the mode waits for
// may be in progress, and no backoff after failed requests. The resize must fit, but a full node is
// tried once (fitting). The rollout of a policy must allow at least memory. Plan marks the action
// with OOMResize.
func (p *Pod) IsOOMResize() bool { return p.WantsOOMResize() && (!p.Ready || !p.WouldRestart()) }

// recentOOM is how long an out-of-memory kill overrides the protection of a pod that is not ready.
// Long after a kill the pod may be unready for another reason.
const recentOOM = 10 * time.Minute

func (p *Pod) recentlyOOMKilled(now time.Time) bool {
	return p.AnyObserved(func(c *Container, k resources.Kind) bool {
		return k == resources.Memory && now.Sub(c.OOM.Ended) < recentOOM && c.growsMemory()
	})
}

func (p *Pod) starved() bool { return !p.Ready && p.WantsOOMResize() }

// WantsOOMResize reports whether a container with growing memory last terminated out of memory.
func (p *Pod) WantsOOMResize() bool {
	return p.AnyObserved(func(c *Container, k resources.Kind) bool {
		return k == resources.Memory && !c.OOM.Ended.IsZero() && c.growsMemory()
	})
}

// growsMemory reports whether the change raises the memory request, or an independent memory limit,
// above both the actual value and the spec. A resize in progress, such as a revert, may request
// more than the recommendation.
func (c *Container) growsMemory() bool {
	const k = resources.Memory
	return c.Target.Requests.Value(k) > max(c.Actual.Requests.Value(k), c.Spec.Requests.Value(k)) ||
		c.Target.MemoryLimit != (policy.LimitSpan{}) && c.Target.Limits.Value(k) > max(c.Actual.Limits.Value(k), c.Spec.Limits.Value(k))
}

// withMemory returns a copy of a held pod that only changes memory, of containers that grow after
// an out-of-memory kill. It is nil if there are none, or the rollout forbids that as well.
func (p *Pod) withMemory() *Pod {
	if !p.MemoryOnly || !p.WantsOOMResize() {
		return nil
	}
	only := *p
	only.Containers = slices.Clone(p.Containers)
	for i := range only.Containers {
		c := &only.Containers[i]
		grows := c.Observed && !c.OOM.Ended.IsZero() && c.growsMemory()
		for k := range resources.Kind(resources.Kinds) {
			if k != resources.Memory || !grows {
				c.Target.Requests, c.Target.Limits = c.Target.Requests.Without(k), c.Target.Limits.Without(k)
			}
		}
	}
	return &only
}

// mustEvictStarved reports whether a pod that ran out of shared memory must be evicted because it
// gets no more in place. A deferred or failed resize has DeferredTimeout to complete.
func (p *plan) mustEvictStarved(pod *Pod) bool {
	switch p.refused[pod.UID] {
	case reason.NodeFull, reason.TooLargeForNode, reason.Infeasible, reason.ClassWouldChange, reason.BackingOff:
		return true
	case reason.Deferred, reason.ResizeFailed:
		return p.now.Sub(p.previous.Since(pod, p.now)) > DeferredTimeout
	}
	return false
}

// OnlyOOM returns only the resizes that add memory after out-of-memory kills, without evictions.
func (r Result) OnlyOOM() Result {
	var kept []Action
	for _, a := range r.Actions {
		a.MayEvict = false
		if a.Share != nil && !a.Share.OOMResize {
			a.Share, a.Stage = nil, StageRecommendation
		}
		switch {
		case a.OOMResize:
			kept = append(kept, a)
		case a.Share != nil:
			kept = append(kept, *a.Share)
		}
	}
	r.Actions = inStages(kept)
	return r
}

// An owner, an annotation or the eviction requirements of the VPA can protect a pod from eviction.
// Resizes that restart no container are still allowed: in mode InPlaceOrRecreate a protected pod is
// handled as in mode InPlace.

// protection returns why a pod must not be evicted, or with evict false not restarted by a resize.
func (v *VPA) protection(p *Pod, evict bool) reason.Reason {
	switch {
	case p.Protected != "" && (evict || forbidsRestart(p.Protected)):
		return p.Protected
	case !v.Admits(p):
		return reason.RequirementsNotMet
	}
	return ""
}

// forbidsRestart excludes OlderRevision, because a restart keeps the revision of the pod.
func forbidsRestart(protection reason.Reason) bool { return protection != reason.OlderRevision }

func (s DecisionInput) forPod(v *VPA, p *Pod) DecisionInput {
	if s.Mode == InPlaceOrRecreate {
		if s.protected = v.protection(p, true); s.protected != "" {
			s.Mode, s.Ungated = InPlace, true
		}
	}
	return s
}

// skipReason returns the protection from eviction if only an eviction would help, otherwise why.
func (s DecisionInput) skipReason(why reason.Reason) reason.Reason {
	switch why {
	case reason.Infeasible, reason.ClassWouldChange, reason.StaticCPU, reason.TooLargeForNode:
		if s.protected != "" {
			return s.protected
		}
	}
	return why
}
