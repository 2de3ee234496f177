package disruption

import (
	"time"
)

// Decision is what can be done with a pod in place.
type Decision uint8

// The decisions. All but Go and Evict come with a Reason.
const (
	Wait         Decision = iota // not now
	Go                           // resize
	Busy                         // a resize is under way; only another target may replace it
	JustRefused                  // the node refused a resize as infeasible; another target may replace it
	StillRefused                 // the node is known to refuse the current target
	Evict                        // evict: a resize did not come about
)

// Situation is what Decide needs besides the pod.
type Situation struct {
	Mode   Mode
	Budget *Budget
	State  State
	Config Config
	Now    time.Time
}

// Decide says what can be done with the pod in place. Of these rows the first that holds
// counts, in the order of the reference VPA; "other" is InPlaceOrRecreate:
//
//	mode     the pod                                       decision
//	InPlace  (the mode is not enabled)                     Wait
//	any      has no known owner that wants pods            Wait
//	any      has an owner with too few, and needs budget   Wait
//	any      is pending                                    Wait
//	InPlace  is known to be refused these sizes            StillRefused
//	InPlace  was just refused                              JustRefused
//	InPlace  is in a resize                                Busy
//	other    is in a resize, or known to be refused        Wait or Evict
//	any      needs no budget                               Go
//	any      needs budget                                  Go, or Wait if there is none
func (s Situation) Decide(p *Pod) (Decision, Reason) {
	free, resizing, inPlace := s.free(p), p.Resize != NotResizing, s.Mode == InPlace
	problem := s.Budget.problem(p)
	switch {
	case inPlace && !s.Config.InPlaceMode:
		return Wait, ModeNotEnabled
	case problem == NoOwner:
		return Wait, problem
	case problem != "" && !free && !s.Config.FreeResizes:
		return Wait, problem
	case p.Pending:
		return Wait, NotRunning
	case inPlace && s.nodeRefuses(p):
		return StillRefused, Infeasible
	case inPlace && p.Resize == ResizeInfeasible:
		return JustRefused, Infeasible
	case inPlace && resizing:
		return Busy, unresized(p.Resize)
	case resizing, !inPlace && s.State.NodeRefuses(p):
		return s.fallback(p)
	case free:
		return Go, ""
	}
	if reason := s.Budget.Denies(p); reason != "" {
		return Wait, reason
	}
	return Go, ""
}

// nodeRefuses reports whether the node is known to refuse what the pod would get. For a pod
// that lacks memory, on a node that gives it no other CPU, it was refused for its CPU
// alone: it is asked for memory.
func (s Situation) nodeRefuses(p *Pod) bool {
	return s.State.NodeRefuses(p) && (!p.WantsOOMResize() || !p.CPURefused())
}

// free reports whether a resize of the pod needs no budget. It is still counted
// against the budget of others, as in the reference VPA.
func (s Situation) free(p *Pod) bool {
	return p.IsOOMResize() || s.Config.FreeResizes && !p.Restarting()
}

// Evictable returns why the pod may not be evicted now, empty if it may.
func (s Situation) Evictable(p *Pod) Reason {
	if p.Pending || p.Resize == NotResizing {
		return s.Budget.Denies(p)
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
	if reason := s.Budget.Denies(p); reason != "" {
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
