package main

import (
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/fairwork"
)

// slowMemory is how long the writes of a namespace come last after one of them took longer than
// fairwork.NamespaceTime. Such writes are rare, so the namespace may have no other one in the next pass.
const slowMemory = time.Hour

// writeTurns are the writes that a pass leaves until those of all other namespaces are made.
type writeTurns struct {
	used            map[string]time.Duration // by namespace
	late            []lateWrite
	lateDisruptions []lateWrite // take more requests than others
}

// lateWrite is a write of a namespace that has used its time. do makes it, with short requests if others
// wait, and reports whether the pass goes on.
type lateWrite struct {
	about disruption.Subject
	do    func(brief bool) bool
}

// inTurn makes a write at once, or later if its namespace has used its time. It reports whether the pass
// goes on.
func (p *pass) inTurn(about disruption.Subject, disrupts bool, do func(brief bool) bool) bool {
	namespace := about.Namespace
	if since, slow := p.slow[namespace]; slow && p.now.Sub(since) >= slowMemory {
		delete(p.slow, namespace)
	} else if slow || p.turns.used[namespace] >= fairwork.NamespaceTime {
		late := &p.turns.late
		if disrupts {
			late = &p.turns.lateDisruptions
		}
		*late = append(*late, lateWrite{about: about, do: do})
		return true
	}
	if p.turns.used == nil {
		p.turns.used = map[string]time.Duration{}
	}
	began := time.Now()
	goesOn := do(true)
	took := time.Since(began)
	p.turns.used[namespace] += took
	if took > fairwork.NamespaceTime && goesOn { // the rate limit is common to all namespaces
		p.slow[namespace] = p.now
	}
	return goesOn
}

// lateTime is how long late writes may delay an early pass.
const lateTime = 3 * time.Second

// carryOutLate makes the writes that were left, in turns of namespaces, evictions last. An early pass, which protects pods
// after a kill, waits for lateTime at most. It does not end late writes at once, because a user can cause
// early passes at any time.
func (p *pass) carryOutLate() {
	late, ended, began := slices.Concat(p.turns.late, p.turns.lateDisruptions), false, time.Now()
	p.turns.late, p.turns.lateDisruptions = nil, nil
	left := fairwork.Run(late, fairwork.Work[lateWrite]{
		Workers:   1,
		Namespace: func(w lateWrite) string { return w.about.Namespace },
		May: func(lateWrite) bool {
			return !ended && (p.urgent == nil || !p.urgent() || time.Since(began) < lateTime)
		},
		Do: func(_ int, w lateWrite) {
			if ended = !w.do(false); ended {
				p.cursor = vpaOf(w.about)
			}
		},
	})
	for _, w := range left {
		p.skip(w.about, disruption.RateLimited)
	}
}
