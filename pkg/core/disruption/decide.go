package disruption

import (
	"time"

	"loadline.dev/loadline/pkg/core/live"
	"loadline.dev/loadline/pkg/core/past"
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
	Mode   live.Mode
	Budget *Budget
	Memory past.Memory
	Config Config
	Now    time.Time
}

// Decide says what can be done with the pod in place, the first match of the
// table in the contract of the updater, section 2.8.2.
func (s Situation) Decide(p *live.Pod) (Decision, Reason) {
	free := s.free(p)
	problem := s.Budget.problem(p)
	switch {
	case s.Mode == live.InPlace && !s.Config.InPlaceMode:
		return Wait, ModeNotEnabled
	case problem == NoOwner, problem != "" && !free && !s.Config.FreeResizes:
		return Wait, problem
	case p.Pending:
		return Wait, NotRunning
	case s.Mode == live.InPlace && s.Memory.Refuses(p):
		return Hold, Infeasible
	case s.Mode == live.InPlace && p.Resize == live.ResizeInfeasible:
		return Again, Infeasible
	case s.Mode == live.InPlace && p.Resize != live.NotResizing:
		return Busy, unresized(p.Resize)
	case p.Resize != live.NotResizing, s.Memory.Refuses(p):
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
func (s Situation) free(p *live.Pod) bool {
	return p.Cured() || s.Config.FreeResizes && !p.Restarting()
}

// Evictable returns why the pod may not be evicted now, empty if it may.
func (s Situation) Evictable(p *live.Pod) Reason {
	if p.Pending || p.Resize == live.NotResizing {
		return s.Budget.Refuses(p)
	}
	_, reason := s.fallback(p)
	return reason
}

// fallback says whether a pod whose resize did not come about is evicted.
func (s Situation) fallback(p *live.Pod) (Decision, Reason) {
	age := s.Now.Sub(s.Memory.Since(p, s.Now))
	waits := p.Resize == live.ResizeDeferred && age <= DeferredTimeout ||
		(p.Resize == live.ResizeInProgress || p.Resize == live.ResizeError && p.GivesMemory()) && age <= InProgressTimeout
	if waits {
		return Wait, unresized(p.Resize)
	}
	if reason := s.Budget.Refuses(p); reason != "" {
		return Wait, reason
	}
	return Evict, ""
}

// unresized says why a pod in this state is left alone.
func unresized(r live.ResizeState) Reason {
	switch r {
	case live.ResizeDeferred:
		return Deferred
	case live.ResizeInfeasible:
		return Infeasible
	case live.ResizeError, live.ResizeUnclear:
		return ResizeFailed
	}
	return WaitingForNode
}
