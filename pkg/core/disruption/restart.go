package disruption

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// A resize that restarts a container takes nothing from a PodDisruptionBudget before the pod is seen not ready: until
// then the API server would let a second pod go, and a third. So of the pods that share an owner or a budget one is
// restarted after the other.

// Restart is a resize that was to restart a container of a ready pod. The zero value is none.
type Restart struct {
	At    time.Time // when it was asked for
	Count int       // Pod.Restarts at that time
}

// How long a Restart is waited for.
const (
	// RestartGrace is how long a pod that shows no restart is waited for. A kubelet
	// that has reported the new sizes for so long needed none.
	RestartGrace = 5 * time.Minute
	// RestartLimit is how long a pod that does not become ready again keeps others from being restarted: every budget
	// counts it as away by then. It is also how long others wait for one whose node does not carry the resize out.
	RestartLimit = time.Hour
)

// RestartState is what became of a restart.
type RestartState struct {
	Restart
	// Pending is since when the pod waits for its node to carry the resize out. The zero value: it does not wait.
	Pending time.Time
	Over    bool // the pod was ready again, or is not waited for any more
}

// follow sees what became of the last restart of a pod, and reports whether there is one.
// What is written on the pod counts where this process does not know it.
func (r RestartState) follow(p *Pod, now time.Time) (next RestartState, known bool) {
	if noted := p.noted().Restart; noted.At.After(r.At) {
		r = RestartState{Restart: noted, Pending: r.Pending}
	}
	switch {
	case p.RestartPending():
		r.Over = false
		if r.Pending.IsZero() {
			// The node may have said the same of an earlier resize for long.
			r.Pending = slices.MaxFunc([]time.Time{p.ResizeSince, r.At}, time.Time.Compare)
			if r.Pending.IsZero() {
				r.Pending = now
			}
		}
		return r, true
	case r.At.IsZero():
		return r, false
	case !r.Pending.IsZero():
		r.At, r.Pending = now, time.Time{} // the restart comes now
	}
	r.Over = r.Over || !p.Recovering(r.Restart, now)
	return r, true
}

// stuck reports whether a pod waits for its node for so long that others do not wait for it any more. One whose node is
// at it, or that was asked for something else a moment ago, may get it now.
func (r RestartState) stuck(p *Pod, now time.Time) bool {
	since := r.Pending
	if p.Resize == ResizeInProgress && p.ResizeSince.After(since) {
		since = p.ResizeSince
	}
	return !r.Pending.IsZero() && now.Sub(since) >= RestartLimit && now.Sub(r.At) >= RestartGrace
}

// Restarting returns a pod that is being restarted, or false if nobody waits for it.
func (m PodStates) Restarting(p *Pod, now time.Time) (RestartHolder, bool) {
	r, known := m.Restarts[p.UID].follow(p, now)
	return RestartHolder{p.UID, r.Pending}, known && !r.Over && !r.stuck(p, now)
}

// FollowRestart is Restarting for one who looks again and again without a plan: it keeps what it saw in m.
func (m *PodStates) FollowRestart(p *Pod, now time.Time) (RestartHolder, bool) {
	if r, known := m.Restarts[p.UID].follow(p, now); known {
		put(&m.Restarts, p.UID, r)
	}
	return m.Restarting(p, now)
}

// RestartPending reports whether a resize of the pod is under way that restarts a container as soon as the node grants
// it. One that the node refused as infeasible is not: it does not come by itself.
func (p *Pod) RestartPending() bool {
	if p.Resize == ResizeInfeasible {
		return false
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		for k := range resources.Kind(resources.Kinds) {
			if c.Restarts[k] && (p.awaits(c.Spec.Requests, c.Actual.Requests, k) || p.awaits(c.Spec.Limits, c.Actual.Limits, k)) {
				return true
			}
		}
	}
	return false
}

// awaits reports whether the node has still to give what was asked for. What it says
// nothing of counts only during a resize: old nodes leave some of it out.
func (p *Pod) awaits(asked, runs resources.List, k resources.Kind) bool {
	return differs(asked, runs, k) && (runs.Has(k) || p.Resize != NotResizing)
}

// Recovering reports whether a restart that was asked for is not over at now: the pod
// was not seen to have restarted, or is not ready again. A restart can be so quick that
// nobody sees the pod not ready, so the number of restarts shows it.
func (p *Pod) Recovering(r Restart, now time.Time) bool {
	age := now.Sub(r.At)
	if r.At.IsZero() || age >= RestartLimit || age <= -RestartLimit {
		return false
	}
	restarted := int(p.Restarts) > r.Count || age >= RestartGrace
	return !restarted || !p.Ready
}

// RestartHolder is a pod that is about to be restarted by a resize, or is not ready again after
// one. Others that share something with it wait.
type RestartHolder struct {
	UID     string
	Pending time.Time // since when it waits for its node; zero: it does not wait
}

// order has those first that do not wait for their node, then those that wait longest.
func (h RestartHolder) order(other RestartHolder) int {
	return cmp.Or(h.Pending.Compare(other.Pending), cmp.Compare(h.UID, other.UID))
}

// BlockingRestart returns the first of the holders for which a pod must wait, or false. Of those that only wait for
// their nodes the first goes on: else two of them would hold each other.
func BlockingRestart(uid string, all []RestartHolder) (first RestartHolder, blocked bool) {
	self := slices.IndexFunc(all, func(h RestartHolder) bool { return h.UID == uid })
	for _, h := range all {
		if h.UID == uid || self >= 0 && !h.Pending.IsZero() && !all[self].Pending.IsZero() && all[self].order(h) < 0 {
			continue
		}
		if !blocked || h.order(first) < 0 {
			first, blocked = h, true
		}
	}
	return first, blocked
}

// RestartHolders are pods that are being restarted, by what they share with others.
type RestartHolders map[string][]RestartHolder

// Add records that a pod holds what it shares.
func (h *RestartHolders) Add(one RestartHolder, keys ...string) {
	if *h == nil {
		*h = RestartHolders{}
	}
	for _, key := range keys {
		if !slices.ContainsFunc((*h)[key], func(known RestartHolder) bool { return known.UID == one.UID }) {
			(*h)[key] = append((*h)[key], one)
		}
	}
}

// Blocker returns for which other pod one must wait, and the first of the keys that they share; or false.
func (h RestartHolders) Blocker(uid string, keys ...string) (by RestartHolder, key string, blocked bool) {
	for _, key := range keys {
		if by, blocked := BlockingRestart(uid, h[key]); blocked {
			return by, key, true
		}
	}
	return RestartHolder{}, "", false
}

// blocked reports whether a pod must wait for another one that shares one of the keys and is being restarted.
func (p *plan) blocked(pod *Pod, keys []string) bool {
	_, _, blocked := p.restarting.Blocker(pod.UID, keys...)
	return blocked
}

// shared are the keys of what a pod shares with others: its owner, and its PodDisruptionBudgets.
func (p *plan) shared(v *VPA, pod *Pod) []string {
	owner := v.GroupOf(pod).Key
	if owner == "" {
		owner = v.Namespace + "/" + v.Name + "/" + strconv.Itoa(pod.Group)
	}
	return append(budgets(pod), "owner "+owner)
}

// budgets are the keys of the PodDisruptionBudgets that count a pod.
func budgets(pod *Pod) []string {
	keys := make([]string, len(pod.Budgets), len(pod.Budgets)+1)
	for i, name := range pod.Budgets {
		keys[i] = "budget " + pod.Namespace + "/" + name
	}
	return keys
}

// reserve takes from a budget the pods that are still ready but about to be restarted.
func (p *plan) reserve(v *VPA, b *Budget) {
	if p.restarting == nil {
		return
	}
	for i := range v.Pods {
		pod := &v.Pods[i]
		if one, holds := p.result.State.Recommended.Restarting(pod, p.now); holds {
			b.leaves(pod, one)
		}
	}
}

// awaited reports whether a restart of the pod was asked for and the pod does not show it yet. Caches may be behind.
func (p *plan) awaited(pod *Pod) bool {
	r, known := p.result.State.Recommended.Restarts[pod.UID]
	return known && !r.Over && pod.Ready && !pod.RestartPending()
}

// postponed is a resize that takes something from others of a budget or an owner, and was planned so far.
type postponed struct {
	vpa       *VPA
	pod       *Pod
	situation Situation
	cause     Cause
}

// postpone reports whether a resize is put off until the others of this plan have had the
// chance: it has been refused before. Otherwise one pod that may never be disrupted, or
// that always uses its memory, would keep all those from it that share something with it.
func (p *plan) postpone(r postponed) bool {
	if _, protected := p.before.Protected[r.pod.UID]; !protected || p.secondRound {
		return false
	}
	p.later = append(p.later, r)
	return true
}

// again plans what was put off, beginning with what was refused longest ago.
func (p *plan) again() {
	p.secondRound = true
	since := func(r postponed) time.Time { return p.before.Protected[r.pod.UID] }
	slices.SortStableFunc(p.later, func(a, b postponed) int {
		return cmp.Or(since(a).Compare(since(b)), cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	for len(p.later) > 0 {
		r := p.later[0]
		p.later = p.later[1:]
		p.onceMore(r)
	}
}

func (p *plan) onceMore(r postponed) {
	defer p.caught(r.vpa)
	denied := r.situation.Budget.Denies(r.pod)
	if denied != "" && !r.situation.needsNoBudget(r.pod) {
		p.skip(r.vpa, r.pod, denied)
		return
	}
	p.resize(r.vpa, r.pod, r.situation, denied, r.cause)
}

// ChangesClass reports whether the change would give the pod another class, which cannot be done to one that runs.
func (p *Pod) ChangesClass() bool {
	has, gets := p.classes()
	return has != gets
}

// classes are the class of the pod, and the one that its change would give it.
func (p *Pod) classes() (has, gets policy.Class) {
	before := make([]policy.Container, 0, len(p.Containers)+len(p.Fixed))
	before = append(before, p.Fixed...)
	after := append(make([]policy.Container, 0, cap(before)), p.Fixed...)
	for i := range p.Containers {
		before = append(before, p.Containers[i].Spec)
		after = append(after, p.Containers[i].After())
	}
	return policy.ClassOf(before), policy.ClassOf(after)
}

// CPURefused reports whether the node would refuse the change for its CPU. Under the static policy a pod of class
// Guaranteed keeps what it has been given for as long as it runs, also where that is a share and no whole CPUs.
func (p *Pod) CPURefused() bool {
	if !p.Static || !slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.After().Requests.Value(resources.CPU) != c.Actual.Requests.Value(resources.CPU)
	}) {
		return false
	}
	has, _ := p.classes()
	return has == policy.Guaranteed
}
