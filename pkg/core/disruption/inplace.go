package disruption

import (
	"cmp"
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
		why = reason.WaitingForNode // reported below if the spec already has the target
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

// resize plans a resize that may be made now. denied is why the pod may not be evicted if the resize
// is refused; empty: it may.
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
	if (restarts || !s.needsNoBudget(pod)) && !oomResize && p.postponeIfPrevented(postponedResize{v, asked, s, cause}) {
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
	p.addResize(v, pod, Action{Cause: cause, OOMResize: oomResize, Restarts: restarts, MayEvict: mayEvict})
}

func (p *plan) addResize(v *VPA, pod *Pod, a Action) {
	a.Disrupts = pod.Ready && (a.Restarts || a.MayEvict)
	if a.Restarts && !a.OOMResize {
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
			if p.Resize == ResizeInfeasible { // as convert.Footprints counts it
				has = c.Actual.Requests.Value(k)
			}
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

// forPod returns the input for a pod. A held pod that needs memory is not evicted either, because
// its replacement would get the whole change.
func (s DecisionInput) forPod(v *VPA, p *Pod) DecisionInput {
	if s.Mode == InPlaceOrRecreate {
		if s.protected = cmp.Or(p.Held, v.protection(p, true)); s.protected != "" {
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

// ChangesClass reports whether the change alters the QoS class, which a resize cannot do.
func (p *Pod) ChangesClass() bool {
	has, gets := p.classes()
	return has != gets
}

func (p *Pod) classes() (has, gets policy.Class) {
	before := make([]policy.Container, 0, len(p.Containers)+len(p.FixedContainers))
	before = append(before, p.FixedContainers...)
	after := append(make([]policy.Container, 0, cap(before)), p.FixedContainers...)
	for i := range p.Containers {
		before = append(before, p.Containers[i].Spec)
		after = append(after, p.Containers[i].After())
	}
	return policy.ClassOf(before), policy.ClassOf(after)
}

// CPURefused reports whether the node would refuse the change because of its CPU. Under the static
// policy a Guaranteed pod keeps its CPU for its lifetime, even if it has no exclusive CPUs.
func (p *Pod) CPURefused() bool {
	if !p.StaticCPU || !slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.After().Requests.Value(resources.CPU) != c.Actual.Requests.Value(resources.CPU)
	}) {
		return false
	}
	has, _ := p.classes()
	return has == policy.Guaranteed
}
