package disruption

import (
	"time"
)

// Decision is what can be done with a pod in place.
type Decision uint8

// The decisions. All but Go and Evict come with a Reason.
const (
	Wait  Decision = iota // not now
	Go                    // resize
	Busy                  // a resize is under way; only another target may replace it
	Again                 // the node refused a resize as infeasible; another target may replace it
	Hold                  // the node is known to refuse the present target
	Evict                 // evict: a resize did not come about
)

// Situation is what Decide needs besides the pod.
type Situation struct {
	Mode   Mode
	Budget *Budget
	State  State
	Config Config
	Now    time.Time
}

// Decide says what can be done with the pod in place: the first of these that holds, in
// the order of the reference VPA.
func (s Situation) Decide(p *Pod) (Decision, Reason) {
	free := s.free(p)
	problem := s.Budget.problem(p)
	switch {
	case s.Mode == InPlace && !s.Config.InPlaceMode:
		return Wait, ModeNotEnabled
	case problem == NoOwner, problem != "" && !free && !s.Config.FreeResizes:
		return Wait, problem
	case p.Pending:
		return Wait, NotRunning
	case s.Mode == InPlace && s.State.Refuses(p) && (!p.WantsOOMResize() || !p.Pinned()): // else it was refused for its CPU alone
		return Hold, Infeasible
	case s.Mode == InPlace && p.Resize == ResizeInfeasible:
		return Again, Infeasible
	case s.Mode == InPlace && p.Resize != NotResizing:
		return Busy, unresized(p.Resize)
	case p.Resize != NotResizing, s.Mode != InPlace && s.State.Refuses(p):
		return s.fallback(p)
	case free:
		return Go, ""
	}
	if reason := s.Budget.Refuses(p); reason != "" {
		return Wait, reason
	}
	return Go, ""
}

// free tells whether a resize of the pod needs no budget. It is still counted
// against the budget of others, as in the reference VPA.
func (s Situation) free(p *Pod) bool {
	return p.IsOOMResize() || s.Config.FreeResizes && !p.Restarting()
}

// Evictable returns why the pod may not be evicted now, empty if it may.
func (s Situation) Evictable(p *Pod) Reason {
	if p.Pending || p.Resize == NotResizing {
		return s.Budget.Refuses(p)
	}
	_, reason := s.fallback(p)
	return reason
}

// fallback says whether a pod whose resize did not come about is evicted.
func (s Situation) fallback(p *Pod) (Decision, Reason) {
	age := s.Now.Sub(s.State.Since(p, s.Now))
	waits := p.Resize == ResizeDeferred && age <= DeferredTimeout ||
		(p.Resize == ResizeInProgress || p.Resize == ResizeError && p.GivesMemory()) && age <= InProgressTimeout
	if waits {
		return Wait, unresized(p.Resize)
	}
	if reason := s.Budget.Refuses(p); reason != "" {
		return Wait, reason
	}
	return Evict, ""
}

// unresized says why a pod in this state is left alone.
func unresized(r ResizeState) Reason {
	switch r {
	case ResizeDeferred:
		return Deferred
	case ResizeInfeasible:
		return Infeasible
	case ResizeError, ResizeUnclear:
		return ResizeFailed
	}
	return WaitingForNode
}
