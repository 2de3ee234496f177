package disruption

import (
	"time"

	"loadline.dev/loadline/pkg/core/capacity"
)

// inPlace plans the resize of a pod, or its eviction where a resize did not or
// cannot come about.
func (p *plan) inPlace(v *VPA, c candidate, s Situation) {
	decision, reason := s.Decide(c.pod)
	cause := c.Cause()
	switch decision {
	case Evict:
		p.evict(v, c.pod, s.Budget, ResizeStuck, "")
		return
	case Go:
		reason = WaitingForNode // if there is nothing to ask for
	case Again, Busy:
		cause = Retry
	default:
		p.skip(v, c.pod, reason)
		return
	}
	if !c.pod.Asks() {
		if decision == Go && p.ignored(v, c.pod) {
			p.evict(v, c.pod, s.Budget, ResizeStuck, s.Budget.Refuses(c.pod))
			return
		}
		if decision == Again { // what was asked for, and nothing else
			put(&p.result.State.Refused, c.pod.UID, requests(c.pod.Fitted()))
		}
		p.skip(v, c.pod, reason)
		return
	}
	refused := s.Budget.Refuses(c.pod)
	if refused != "" && !s.free(c.pod) {
		p.skip(v, c.pod, refused)
		return
	}
	p.resize(v, c.pod, s, refused, cause)
}

// ignored tells whether a resize was accepted long ago and nobody acted on it,
// so that the pod may be evicted instead.
func (p *plan) ignored(v *VPA, pod *Pod) bool {
	return v.Mode == InPlaceOrRecreate && pod.Unanswered() && p.now.Sub(p.before.Since(pod, p.now)) > InProgressTimeout
}

// resize plans a resize that the budget allows, or that needs none; refused is
// what the budget says of an eviction.
func (p *plan) resize(v *VPA, pod *Pod, s Situation, refused Reason, cause Cause) {
	evicts := v.Mode == InPlaceOrRecreate
	possible, reason := grantable(pod)
	if reason != "" {
		p.instead(v, pod, s, cause, reason, evicts)
		return
	}
	whole := pod
	evicts = evicts && possible == pod
	pod = possible
	if p.before.Waits(pod, p.now) {
		p.skip(v, pod, BackingOff)
		return
	}
	restarts := pod.Restarting()
	reason = p.stabilizing(v.GroupOf(pod), pod)
	if restarts {
		reason = p.restless(v, pod)
	}
	if reason != "" && !pod.IsOOMResize() {
		p.skip(v, pod, reason)
		return
	}
	if restarts && !pod.IsOOMResize() && p.awaited(pod) {
		p.skip(v, pod, WaitingForNode)
		return
	}
	if (restarts || !s.free(pod)) && !pod.IsOOMResize() && p.yields(restart{v, whole, s, cause}) {
		return
	}
	if restarts && !pod.IsOOMResize() && p.blocked(pod, p.shared(v, pod)) {
		p.skip(v, pod, RestartUnderWay)
		return
	}
	need := pod.Need()
	if p.room != nil {
		answer := p.room.Resize(need)
		if answer != capacity.Fits {
			if part := p.capped(pod); part != nil {
				pod, need, answer, evicts = part, part.Need(), capacity.Fits, false
			}
		}
		if answer == capacity.Full && !restarts && !p.config.CapToRoom && !p.before.Asked(pod) {
			// The node grants it as soon as there is room, before any pass would see that.
			// Not what restarts: it would come when nobody looks at budgets any more.
			need.Node = ""
			answer = p.room.Resize(need)
		}
		if answer != capacity.Fits {
			evicts = evicts && answer != capacity.OverQuota && (answer == capacity.TooLarge || p.crowded(pod) > DeferredTimeout)
			p.instead(v, pod, s, ResizeStuck, noRoom(answer), evicts)
			return
		}
	}
	mayEvict := refused == "" && evicts && p.unsuitable(v, pod) == ""
	s.Budget.Spend(pod)
	if p.room != nil {
		p.room.Keep(need, false)
	}
	a := Action{Cause: cause, OOMResize: pod.IsOOMResize(), Restarts: restarts, MayEvict: mayEvict, Disrupts: pod.Ready && (restarts || mayEvict)}
	if restarts && !pod.IsOOMResize() {
		p.restarting.Add(RestartHolder{UID: pod.UID}, p.shared(v, pod)...)
		if pod.Ready {
			a.Restart = Restart{At: p.now, Count: pod.Restarts}
		}
	}
	p.add(v, pod, a)
}

// grantable returns what of a change a node can ever grant in place, or why nothing:
// a pod keeps its class, and under the static policy its CPU. One that lacks memory
// gets that alone.
func grantable(p *Pod) (*Pod, Reason) {
	switch {
	case p.ChangesClass():
		return nil, ClassWouldChange
	case !p.Pinned():
		return p, ""
	}
	memory := p.KeepingCPU()
	if p.WantsOOMResize() && memory.Asks() && !memory.Pinned() {
		return memory, ""
	}
	return nil, StaticCPU
}

// instead evicts a pod that cannot be resized, if the mode allows that, or else
// gives the reason.
func (p *plan) instead(v *VPA, pod *Pod, s Situation, cause Cause, reason Reason, evicts bool) {
	if !evicts {
		p.skip(v, pod, reason)
		return
	}
	p.evict(v, pod, s.Budget, cause, s.Budget.Refuses(pod))
}

// crowded is for how long a pod is known not to fit on its node.
func (p *plan) crowded(pod *Pod) time.Duration {
	since, known := p.before.Crowded[pod.UID]
	if !known {
		since = p.now
	}
	p.result.State.Crowded[pod.UID] = since
	return p.now.Sub(since)
}
