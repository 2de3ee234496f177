package disruption

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// A resize that restarts a container reduces the PodDisruptionBudget only when the pod is seen not
// ready. Until then the API server would allow further disruptions. Pods with a common owner or
// budget are therefore restarted one after the other.

// Restart is a resize that was to restart a container of a ready pod. The zero value is none.
type Restart struct {
	At    time.Time // time of the request
	Count int       // Pod.Restarts at that time
}

// Timeouts of a Restart.
const (
	// RestartGrace is how long to wait for a pod that shows no restart. A kubelet that has reported
	// the new resources for this time needed none.
	RestartGrace = 5 * time.Minute
	// RestartLimit is how long a pod that is not ready again blocks other restarts: by then every
	// budget counts it as unavailable. It also limits the wait for a node that applies no resize.
	RestartLimit = time.Hour
)

// RestartState is the progress of a restart.
type RestartState struct {
	Restart
	// PendingSince is when the pod began to wait for its node to apply the resize; zero: no wait.
	PendingSince time.Time
	Over         bool // the pod became ready again, or the wait timed out
}

// follow updates the last restart of a pod. A newer one that is persisted on the pod replaces it.
func (r RestartState) follow(p *Pod, now time.Time) (next RestartState, known bool) {
	if noted := p.persisted().Restart; noted.At.After(r.At) {
		r = RestartState{Restart: noted, PendingSince: r.PendingSince}
	}
	switch {
	case p.RestartPending():
		r.Over = false
		if r.PendingSince.IsZero() {
			// The reported time may belong to an earlier resize.
			r.PendingSince = slices.MaxFunc([]time.Time{p.ResizeSince, r.At}, time.Time.Compare)
			if r.PendingSince.IsZero() {
				r.PendingSince = now
			}
		}
		return r, true
	case r.At.IsZero():
		return r, false
	case !r.PendingSince.IsZero():
		r.At, r.PendingSince = now, time.Time{} // the restart begins now
	}
	r.Over = r.Over || !p.Recovering(r.Restart, now)
	return r, true
}

// stuck reports whether the node has not applied the resize for so long that other pods no longer
// wait. A resize that is in progress or was requested a moment ago may still complete.
func (r RestartState) stuck(p *Pod, now time.Time) bool {
	since := r.PendingSince
	if p.Resize == ResizeInProgress && p.ResizeSince.After(since) {
		since = p.ResizeSince
	}
	return !r.PendingSince.IsZero() && now.Sub(since) >= RestartLimit && now.Sub(r.At) >= RestartGrace
}

// Restarting returns the holder for a pod that is being restarted, or false if no pod must wait.
func (m PodStates) Restarting(p *Pod, now time.Time) (RestartHolder, bool) {
	r, known := m.Restarts[p.UID].follow(p, now)
	return RestartHolder{p.UID, r.PendingSince}, known && !r.Over && !r.stuck(p, now)
}

// FollowRestart is Restarting for repeated calls without a plan: it stores the observed state in m.
func (m *PodStates) FollowRestart(p *Pod, now time.Time) (RestartHolder, bool) {
	if r, known := m.Restarts[p.UID].follow(p, now); known {
		put(&m.Restarts, p.UID, r)
	}
	return m.Restarting(p, now)
}

// RestartPending reports whether a resize in progress restarts a container once the node grants it.
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

// awaits counts a kind that the node does not report only during a resize: old kubelets omit some.
func (p *Pod) awaits(asked, runs resources.List, k resources.Kind) bool {
	return differs(asked, runs, k) && (runs.Has(k) || p.Resize != NotResizing)
}

// Recovering reports whether the pod has not restarted, or is not ready again. A restart can be too
// short for the pod to be seen as not ready, so the restart count decides.
func (p *Pod) Recovering(r Restart, now time.Time) bool {
	age := now.Sub(r.At)
	if r.At.IsZero() || age >= RestartLimit || age <= -RestartLimit {
		return false
	}
	restarted := int(p.Restarts) > r.Count || age >= RestartGrace
	return !restarted || !p.Ready
}

// RestartHolder is a pod with an unfinished restart. Pods that share an owner or budget with it
// wait.
type RestartHolder struct {
	UID          string
	PendingSince time.Time // when it began to wait for its node; zero: it does not wait
}

// compare orders holders that do not wait for their node first, then the longest waiting.
func (h RestartHolder) compare(other RestartHolder) int {
	return cmp.Or(h.PendingSince.Compare(other.PendingSince), cmp.Compare(h.UID, other.UID))
}

// BlockingRestart returns the first holder that a pod must wait for, or false. The first of the
// holders that wait for their nodes may proceed, otherwise two of them would block each other.
func BlockingRestart(uid string, all []RestartHolder) (first RestartHolder, blocked bool) {
	self := slices.IndexFunc(all, func(h RestartHolder) bool { return h.UID == uid })
	for _, h := range all {
		if h.UID == uid || self >= 0 && !h.PendingSince.IsZero() && !all[self].PendingSince.IsZero() && all[self].compare(h) < 0 {
			continue
		}
		if !blocked || h.compare(first) < 0 {
			first, blocked = h, true
		}
	}
	return first, blocked
}

// RestartHolders are the pods that are being restarted, by owner and budget keys.
type RestartHolders map[string][]RestartHolder

// Add records that a pod holds the keys.
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

// Blocker returns the pod that must be waited for and the first common key, or false.
func (h RestartHolders) Blocker(uid string, keys ...string) (by RestartHolder, key string, blocked bool) {
	for _, key := range keys {
		if by, blocked := BlockingRestart(uid, h[key]); blocked {
			return by, key, true
		}
	}
	return RestartHolder{}, "", false
}

func (p *plan) blocked(pod *Pod, keys []string) bool {
	_, _, blocked := p.restarting.Blocker(pod.UID, keys...)
	return blocked
}

func (p *plan) sharedKeys(v *VPA, pod *Pod) []string {
	owner := v.GroupOf(pod).Key
	if owner == "" {
		owner = v.Namespace + "/" + v.Name + "/" + strconv.Itoa(pod.Group)
	}
	return append(budgetKeys(pod), "owner "+owner)
}

func budgetKeys(pod *Pod) []string {
	keys := make([]string, len(pod.Budgets), len(pod.Budgets)+1)
	for i, name := range pod.Budgets {
		keys[i] = "budget " + pod.Namespace + "/" + name
	}
	return keys
}

// chargeRestarting charges the budget with the pods that are still ready but about to be restarted.
func (p *plan) chargeRestarting(v *VPA, b *Budget) {
	if p.restarting == nil {
		return
	}
	for i := range v.Pods {
		pod := &v.Pods[i]
		if one, holds := p.result.State.Recommended.Restarting(pod, p.now); holds {
			b.addRestarting(pod, one)
		}
	}
}

// restartRequested covers a stale informer cache: the pod does not show a requested restart yet.
func (p *plan) restartRequested(pod *Pod) bool {
	r, known := p.result.State.Recommended.Restarts[pod.UID]
	return known && !r.Over && pod.Ready && !pod.RestartPending()
}

// postponedResize is a planned resize that affects other pods of its budget or owner.
type postponedResize struct {
	vpa       *VPA
	pod       *Pod
	situation DecisionInput
	cause     Cause
}

// postponeIfPrevented reports whether a resize was prevented before and is planned after all others. Otherwise
// a pod that can never be disrupted would block all pods of its owner and budgets.
func (p *plan) postponeIfPrevented(r postponedResize) bool {
	if _, protected := p.previous.Protected[r.pod.UID]; !protected || p.secondRound {
		return false
	}
	p.postponed = append(p.postponed, r)
	return true
}

func (p *plan) planPostponed() {
	p.secondRound = true
	since := func(r postponedResize) time.Time { return p.previous.Protected[r.pod.UID] }
	slices.SortStableFunc(p.postponed, func(a, b postponedResize) int {
		return cmp.Or(since(a).Compare(since(b)), cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	for len(p.postponed) > 0 {
		r := p.postponed[0]
		p.postponed = p.postponed[1:]
		p.retryPostponed(r)
	}
}

func (p *plan) retryPostponed(r postponedResize) {
	defer p.recoverVPA(r.vpa)
	denied := r.situation.Budget.Denies(r.pod)
	if denied != "" && !r.situation.needsNoBudget(r.pod) {
		p.skip(r.vpa, r.pod, denied)
		return
	}
	p.resize(r.vpa, r.pod, r.situation, denied, r.cause)
}
