package updater

import (
	"cmp"
	"context"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/fairwork"
)

// slowMemory is how long writes of a namespace come last after a write that took longer than
// fairwork.NamespaceTime. A faster write ends it. It spans many passes, because a namespace with slow writes
// may have none in most of them.
const slowMemory = time.Hour

// writeTurns are the writes that a pass leaves until those of all other namespaces are made.
type writeTurns struct {
	used      map[string]time.Duration // by namespace
	late      []lateWrite
	lateBegun bool // late writes are being made
}

// turnEnded is the result of a change that was not tried, because its checks needed more than the turn. It is
// repeated as a late write of the same pass.
const turnEnded reason.Reason = "TurnEnded"

const (
	// maxTurnTime bounds all requests of a write while other namespaces wait. A webhook of others that does
	// not answer, and whose failures are ignored, may take longer. Then the namespace comes last.
	maxTurnTime = 6 * time.Second
	// maxLateTurnTime bounds all requests of a late write.
	maxLateTurnTime = time.Minute
)

// lateWrite is a write of a namespace that has used its time. do makes it, and reports whether the pass
// goes on.
type lateWrite struct {
	about    disruption.Subject
	disrupts bool // takes more requests than another write
	do       func(ctx context.Context) bool
}

// inTurn makes a write at once in a turn of its namespace, or later if the namespace has used its time. It
// reports whether the pass goes on.
func (p *pass) inTurn(ctx context.Context, about disruption.Subject, disrupts bool, do func(ctx context.Context) bool) bool {
	namespace := about.Namespace
	if since, slow := p.slow[namespace]; slow && p.now.Sub(since) >= slowMemory {
		delete(p.slow, namespace)
	} else if slow || p.turns.used[namespace] >= fairwork.NamespaceTime {
		p.turns.late = append(p.turns.late, lateWrite{about: about, disrupts: disrupts, do: do})
		return true
	}
	if p.turns.used == nil {
		p.turns.used = map[string]time.Duration{}
	}
	turn := fairwork.Turn(ctx, maxTurnTime)
	goesOn := do(turn)
	took := fairwork.Used(turn)
	p.turns.used[namespace] += took
	if took > fairwork.NamespaceTime && goesOn { // the time of a pass that ends is short for all namespaces
		p.slow[namespace] = p.now
	}
	return goesOn
}

// lateTime is how long late writes may delay an early pass.
const lateTime = 3 * time.Second

// carryOutLate makes the late writes in turns of namespaces. Namespaces without a turn in the last pass come
// first, and disruptions come last in each namespace. Every lateTime it gives way to an early pass, if a pod
// was killed that needs more memory. The pass is then repeated, because users can cause kills at any time.
func (p *pass) carryOutLate(ctx context.Context) {
	late, served, ended, checked := p.turns.late, map[string]bool{}, false, time.Now()
	p.turns.late, p.turns.lateBegun = nil, true
	if p.yields {
		p.interrupted = false
	}
	rank := func(w lateWrite) (r int) {
		if !p.unserved[w.about.Namespace] {
			r += 2
		}
		if w.disrupts {
			r++
		}
		return r
	}
	slices.SortStableFunc(late, func(a, b lateWrite) int { return cmp.Compare(rank(a), rank(b)) })
	left := fairwork.Run(late, fairwork.Work[lateWrite]{
		Workers:   1,
		Namespace: func(w lateWrite) string { return w.about.Namespace },
		May: func(lateWrite) bool {
			if p.yields && p.killed != nil && time.Since(checked) >= lateTime {
				p.interrupted, checked = p.killed(ctx), time.Now()
			}
			return !ended && (!p.yields || !p.interrupted)
		},
		Do: func(_ int, w lateWrite) {
			turn := fairwork.Turn(ctx, maxLateTurnTime)
			served[w.about.Namespace] = true
			if ended = !w.do(turn); ended {
				p.cursor = vpaOf(w.about)
			} else if fairwork.Used(turn) < fairwork.NamespaceTime {
				delete(p.slow, w.about.Namespace)
			}
		},
	})
	for namespace := range served {
		delete(p.unserved, namespace)
	}
	for _, w := range left {
		if !served[w.about.Namespace] {
			p.unserved[w.about.Namespace] = true
		}
		p.skip(w.about, reason.RateLimited)
	}
}
