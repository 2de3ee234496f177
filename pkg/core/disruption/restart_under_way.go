package disruption

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

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
			if c.Restarts[k] && (p.awaits(c.Asked.Requests, c.Current.Requests, k) || p.awaits(c.Asked.Limits, c.Current.Limits, k)) {
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
	restarted := p.Restarts > r.Count || age >= RestartGrace
	return !restarted || !p.Ready
}
