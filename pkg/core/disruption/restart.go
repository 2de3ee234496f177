package disruption

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// A resize that restarts a container takes nothing from a PodDisruptionBudget before
// the pod is seen not ready: until then the API server would let a second pod go, and a
// third. So of the pods that share an owner or a budget one is restarted after the
// other.

// Restart is a resize that was to restart a container of a ready pod. The zero value
// is none.
type Restart struct {
	At    time.Time // when it was asked for
	Count int       // Pod.Restarts at that time
}

// How long a Restart is waited for.
const (
	// RestartGrace is how long a pod that shows no restart is waited for. A kubelet
	// that has reported the new sizes for so long needed none.
	RestartGrace = 5 * time.Minute
	// RestartLimit is how long a pod that does not become ready again keeps others
	// from being restarted: every budget counts it as away by then. It is also how long
	// others wait for one whose node does not carry the resize out.
	RestartLimit = time.Hour
)

// RestartState is what became of a restart.
type RestartState struct {
	Restart
	// Pending is since when the pod waits for its node to carry the resize out. The
	// zero value: it does not wait.
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

// stuck reports whether a pod waits for its node for so long that others do not wait for
// it any more. One whose node is at it, or that was asked for something else a moment ago,
// may get it now.
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

// FollowRestart is Restarting for one who looks again and again without a plan: it keeps
// what it saw in m.
func (m *PodStates) FollowRestart(p *Pod, now time.Time) (RestartHolder, bool) {
	if r, known := m.Restarts[p.UID].follow(p, now); known {
		put(&m.Restarts, p.UID, r)
	}
	return m.Restarting(p, now)
}

// RestartPending reports whether a resize of the pod is under way that restarts a
// container as soon as the node grants it. One that the node refused as infeasible is
// not: it does not come by itself.
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

// BlockingRestart returns the first of the holders for which a pod must wait, or false. Of those
// that only wait for their nodes the first goes on: else two of them would hold each
// other.
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

// Blocker returns for which other pod one must wait, and the first of the keys that they
// share; or false.
func (h RestartHolders) Blocker(uid string, keys ...string) (by RestartHolder, key string, blocked bool) {
	for _, key := range keys {
		if by, blocked := BlockingRestart(uid, h[key]); blocked {
			return by, key, true
		}
	}
	return RestartHolder{}, "", false
}
