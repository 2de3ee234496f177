package disruption

import (
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// inPlace plans the resize of a pod, or its eviction where a resize did not or cannot come about.
func (p *plan) inPlace(v *VPA, c candidate, s Situation) {
	decision, why := s.Decide(c.pod)
	cause := c.Cause()
	switch decision {
	case Evict:
		p.evict(v, c.pod, s.Budget, ResizeStuck, "")
		return
	case Go:
		why = reason.WaitingForNode // if there is nothing to ask for
	case JustRefused, Busy:
		cause = Retry
	default:
		p.skip(v, c.pod, s.skipReason(why))
		return
	}
	if !c.pod.Asks() {
		if decision == Go && p.ignored(s, c.pod) {
			p.evict(v, c.pod, s.Budget, ResizeStuck, s.Budget.Denies(c.pod))
			return
		}
		if decision == JustRefused { // what was asked for, and nothing else
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

// ignored reports whether a resize was accepted long ago and nobody acted on it,
// so that the pod may be evicted instead.
func (p *plan) ignored(s Situation, pod *Pod) bool {
	return s.Mode == InPlaceOrRecreate && pod.Unanswered() && p.now.Sub(p.before.Since(pod, p.now)) > InProgressTimeout
}

// resize plans a resize that the budget allows, or that needs none; denied is what the budget says of an eviction.
func (p *plan) resize(v *VPA, asked *Pod, s Situation, denied reason.Reason, cause Cause) {
	evicts := s.Mode == InPlaceOrRecreate
	pod, why := grantable(asked)
	if why != "" {
		p.evictInstead(v, asked, s, cause, why, evicts)
		return
	}
	restarts, oomResize := pod.WouldRestart(), pod.IsOOMResize()
	if why := p.mustWait(v, pod); why != "" {
		p.skip(v, pod, why)
		return
	}
	if (restarts || !s.needsNoBudget(pod)) && !oomResize && p.postpone(postponed{v, asked, s, cause}) {
		return
	}
	if restarts && !oomResize && p.blocked(pod, p.shared(v, pod)) {
		p.skip(v, pod, reason.RestartUnderWay)
		return
	}
	pod, need, answer := p.fitting(pod)
	evicts = evicts && pod == asked // a part of what is asked for is worth no eviction
	if answer != RoomFits {
		evicts = evicts && answer != RoomOverQuota && (answer == RoomTooLarge || p.crowded(pod) > DeferredTimeout)
		p.evictInstead(v, pod, s, ResizeStuck, noRoom(answer), evicts)
		return
	}
	mayEvict := denied == "" && evicts && p.mayNotEvict(v, pod) == ""
	s.Budget.Spend(pod)
	if p.room != nil {
		p.room.Keep(need, false)
	}
	a := Action{Cause: cause, OOMResize: oomResize, Restarts: restarts, MayEvict: mayEvict, Disrupts: pod.Ready && (restarts || mayEvict)}
	if restarts && !oomResize {
		p.restarting.Add(RestartHolder{UID: pod.UID}, p.shared(v, pod)...)
		if pod.Ready {
			a.Restart = Restart{At: p.now, Count: int(pod.Restarts)}
		}
	}
	p.add(v, pod, a)
}

// mustWait says why a resize has to wait for what was done before.
func (p *plan) mustWait(v *VPA, pod *Pod) reason.Reason {
	switch {
	case p.before.Waits(pod, p.now):
		return reason.BackingOff
	case pod.IsOOMResize():
		return ""
	case !pod.WouldRestart():
		return p.stabilizing(v.GroupOf(pod), pod)
	}
	if why := p.workloadHolds(v, pod); why != "" {
		return why
	}
	if p.awaited(pod) {
		return reason.WaitingForNode
	}
	return ""
}

// fitting returns a pod as it can grow now, what that needs, and what is in the way, if
// anything. With CapToRoom a pod grows by what there is room for.
func (p *plan) fitting(pod *Pod) (*Pod, Need, RoomAnswer) {
	need := pod.Need()
	if p.room == nil {
		return pod, need, RoomFits
	}
	answer := p.room.Resize(need)
	if answer == RoomFits {
		return pod, need, answer
	}
	if part := p.asMuchAsFits(pod); part != nil {
		return part, part.Need(), RoomFits
	}
	if answer == RoomFull && !pod.WouldRestart() && !p.config.CapToRoom && !p.config.onlyFitting && !p.before.Asked(pod) {
		// The node grants it as soon as there is room, before any pass would see that.
		// Not what restarts: it would come when nobody looks at budgets any more.
		need.Node = ""
		answer = p.room.Resize(need)
	}
	return pod, need, answer
}

// asMuchAsFits returns a pod that grows by what there is room for, where that is enough to
// be worth a resize; else nil. The rest follows when there is more room.
func (p *plan) asMuchAsFits(pod *Pod) *Pod {
	if !p.config.CapToRoom {
		return nil
	}
	part := pod.Part(p.room.Part(pod.Need()))
	need := part.Need()
	if p.room.Resize(need) != RoomFits {
		return nil
	}
	for k := range resources.Kind(resources.Kinds) {
		if grown := need.Wants.Value(k) > need.Has.Value(k); grown && Relative(k, need.Has.Value(k), need.Wants.Value(k)) >= p.config.Threshold {
			return part
		}
	}
	return nil
}

// After is what the spec of the container would ask for.
func (c *Container) After() policy.Container {
	after := c.Spec
	if c.Observed {
		after.Requests, after.Limits = after.Requests.Override(c.Target.Requests), after.Limits.Override(c.Target.Limits)
	}
	return after
}

// Need is what the change of a pod takes.
func (p *Pod) Need() Need {
	n := Need{Namespace: p.Namespace, Traits: p.Traits, Node: p.Node, Bound: p.Bound, Leaves: p.Leaves(), Yields: p.starved(), Sized: p.Sized, Has: p.Footprint, Wants: p.Footprint}
	for i := range p.Containers {
		c := &p.Containers[i]
		after := c.After()
		for k := range resources.Kind(resources.Kinds) {
			has := max(c.Spec.Requests.Value(k), c.Actual.Requests.Value(k))
			if by := after.Requests.Value(k) - has; by != 0 {
				n.Wants = n.Wants.With(k, n.Wants.Value(k).Add(by))
			}
			if by := after.Limits.Value(k) - c.Spec.Limits.Value(k); by > 0 {
				n.More = n.More.With(k, n.More.Value(k).Add(by))
			}
			n.Limits = n.Limits.With(k, n.Limits.Value(k).Add(after.Limits.Value(k)))
		}
	}
	n.Back = n.Wants
	for i := range p.peak() { // a share ends with the pod
		whole := p.Containers[i]
		whole.Target = p.Share.Peak[i]
		after, shared := whole.After().Requests, p.Containers[i].After().Requests
		for k := range resources.Kind(resources.Kinds) {
			n.Back = n.Back.With(k, n.Back.Value(k).Add(after.Value(k)-shared.Value(k)))
		}
	}
	// What the ordinary containers get beside each other, the init containers have had before: it is counted once.
	for k := range resources.Kind(resources.Kinds) {
		if least := p.Starting.Value(k); least > 0 {
			n.Has, n.Wants, n.Back = n.Has.With(k, max(n.Has.Value(k), least)), n.Wants.With(k, max(n.Wants.Value(k), least)), n.Back.With(k, max(n.Back.Value(k), least))
		}
	}
	return n
}

// noRoom is the reason for an answer.
func noRoom(a RoomAnswer) reason.Reason {
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

// grantable returns what of a change a node can ever grant in place, or why nothing: a pod keeps its class, and under
// the static policy its CPU. One that lacks memory gets that alone.
func grantable(p *Pod) (*Pod, reason.Reason) {
	switch {
	case p.ChangesClass():
		return nil, reason.ClassWouldChange
	case !p.CPURefused():
		return p, ""
	}
	memory := p.KeepingCPU()
	if p.WantsOOMResize() && memory.Asks() && !memory.CPURefused() {
		return memory, ""
	}
	return nil, reason.StaticCPU
}

// evictInstead evicts a pod that cannot be resized, if the mode allows that, or else gives the reason.
func (p *plan) evictInstead(v *VPA, pod *Pod, s Situation, cause Cause, why reason.Reason, evicts bool) {
	if !evicts {
		p.skip(v, pod, s.skipReason(why))
		return
	}
	p.evict(v, pod, s.Budget, cause, s.Budget.Denies(pod))
}

// crowded is for how long a pod is known not to fit on its node.
func (p *plan) crowded(pod *Pod) time.Duration {
	since, known := p.before.Crowded[pod.UID]
	if !known {
		since = p.now
	}
	p.result.State.Recommended.Crowded[pod.UID] = since
	return p.now.Sub(since)
}

// QuickOOM reports whether a container ran out of memory less than the threshold
// after its start, and less than the threshold ago.
func (p *Pod) QuickOOM(threshold time.Duration, now time.Time) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Observed && !c.Off && !c.OOM.Ended.IsZero() &&
			c.OOM.Ended.Sub(c.OOM.Started) < threshold && now.Sub(c.OOM.Ended) < threshold
	})
}

// IsOOMResize reports whether a resize gives memory after an out-of-memory kill and disrupts nothing
// that works: the last termination of a container that grows was an out-of-memory kill, and the pod
// is not ready or no container restarts for it. Such a resize
//
//   - needs no budget (Situation.needsNoBudget), and no PodDisruptionBudget is asked (package actuate),
//   - waits neither for the back-off of its workload, nor for the stabilization window or
//     other restarts, and is not put off (plan.mustWait, plan.resize),
//   - asks for memory alone where the node gives no other CPU (Situation.nodeRefuses, grantable),
//   - is counted by no rate limit of disruptions; if it comes to an eviction of a pod that is not
//     ready, that takes only what grows from a quota (Need.Yields).
//
// It must be worth it (Assess: out of bounds, or killed soon after its start), have an owner, not be pending, have no
// other resize under way that the mode waits for, must not have been tried in vain, and must find room; a full node is
// asked once all the same (fitting). The rollout of a policy must leave it at least its memory. Plan marks its action
// with OOMResize.
func (p *Pod) IsOOMResize() bool { return p.WantsOOMResize() && (!p.Ready || !p.WouldRestart()) }

// lately is for how long an out-of-memory kill lifts the protections of a pod that is not ready. A pod may
// be unready for another cause, long after a kill.
const lately = 10 * time.Minute

func (p *Pod) killedLately(now time.Time) bool {
	return p.Any(func(c *Container, k resources.Kind) bool {
		return k == resources.Memory && now.Sub(c.OOM.Ended) < lately && c.moreMemory()
	})
}

// starved reports whether a pod is not ready and the last termination of a container that would grow was an
// out-of-memory kill.
func (p *Pod) starved() bool { return !p.Ready && p.WantsOOMResize() }

// WantsOOMResize reports whether a container that would get more memory was out of it last.
func (p *Pod) WantsOOMResize() bool {
	return p.Any(func(c *Container, k resources.Kind) bool {
		return k == resources.Memory && !c.OOM.Ended.IsZero() && c.moreMemory()
	})
}

// moreMemory reports whether the change raises the memory of a container above both its current and its
// requested sizes: the request or, where the limit does not follow the request, the limit. A resize in
// progress, such as a revert, may request more than the recommendation.
func (c *Container) moreMemory() bool {
	const k = resources.Memory
	return c.Target.Requests.Value(k) > max(c.Actual.Requests.Value(k), c.Spec.Requests.Value(k)) ||
		c.Target.MemoryLimit != (policy.LimitSpan{}) && c.Target.Limits.Value(k) > max(c.Actual.Limits.Value(k), c.Spec.Limits.Value(k))
}

// withMemory returns a held pod that gets nothing but memory, for those of its containers that
// were out of it last; nil: none was, or the rollout does not allow that either.
func (p *Pod) withMemory() *Pod {
	if !p.MemoryOnly || !p.WantsOOMResize() {
		return nil
	}
	only := *p
	only.Containers = slices.Clone(p.Containers)
	for i := range only.Containers {
		c := &only.Containers[i]
		grows := c.Observed && !c.OOM.Ended.IsZero() && c.moreMemory()
		for k := range resources.Kind(resources.Kinds) {
			if k != resources.Memory || !grows {
				c.Target.Requests, c.Target.Limits = c.Target.Requests.Without(k), c.Target.Limits.Without(k)
			}
		}
	}
	return &only
}

// starves reports whether a pod that ran out of memory that it shares is to be evicted because it does not
// get more in place. A kubelet that was asked has a while to find room.
func (p *plan) starves(pod *Pod) bool {
	switch p.refused[pod.UID] {
	case reason.NodeFull, reason.TooLargeForNode, reason.Infeasible, reason.ClassWouldChange, reason.BackingOff:
		return true
	case reason.Deferred, reason.ResizeFailed:
		return p.now.Sub(p.before.Since(pod, p.now)) > DeferredTimeout
	}
	return false
}

// OnlyOOM returns the plan with nothing but what gives memory after out-of-memory kills, and without evictions.
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

// A pod can be protected from evictions by its owner, by an annotation, or by the eviction requirements of
// its VPA. Resizes that restart no container are still allowed: in mode InPlaceOrRecreate a protected pod is
// handled as in mode InPlace.

// protection returns the reason why a pod must not be evicted or, with evict false, why a resize must not
// restart its containers. Empty: the pod is not protected.
func (v *VPA) protection(p *Pod, evict bool) reason.Reason {
	switch {
	case p.Protected != "" && (evict || forbidsRestart(p.Protected)):
		return p.Protected
	case !v.Admits(p):
		return reason.RequirementsNotMet
	}
	return ""
}

// forbidsRestart reports whether a protection from evictions also covers restarts of containers. A restart
// keeps the revision of the pod, so OlderRevision does not forbid it.
func forbidsRestart(protection reason.Reason) bool { return protection != reason.OlderRevision }

// forPod returns the situation of one pod, whose mode is InPlace if the pod is protected.
func (s Situation) forPod(v *VPA, p *Pod) Situation {
	if s.Mode == InPlaceOrRecreate {
		if s.protected = v.protection(p, true); s.protected != "" {
			s.Mode, s.Ungated = InPlace, true
		}
	}
	return s
}

// skipReason returns the reason to report for a pod that is not resized. Where only an eviction would help,
// that is the protection from evictions.
func (s Situation) skipReason(why reason.Reason) reason.Reason {
	switch why {
	case reason.Infeasible, reason.ClassWouldChange, reason.StaticCPU, reason.TooLargeForNode:
		if s.protected != "" {
			return s.protected
		}
	}
	return why
}
