package updater

import (
	"errors"
	"slices"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/actuate"
)

// takeStart reports whether the start rate allows a change of the workload, and counts its first
// change as a start. Starts are counted here and not when changes are planned, so that a workload
// that cannot be changed uses none.
func (h *heldWorkload) takeStart() bool {
	if h.countedAsStart || !h.State.Started.IsZero() {
		return true
	}
	if h.limits.Starts <= 0 {
		return false
	}
	h.limits.Starts--
	h.countedAsStart = true
	return true
}

// returnStart gives the start of a workload back if none of its pods was changed.
func (p *pass) returnStart(of disruption.Subject) {
	if h := p.rollouts[vpaOf(of)]; h != nil && h.countedAsStart && !h.sent {
		h.limits.Starts++
		h.countedAsStart = false
	}
}

// sent notes that a pod of a workload was changed, or may have been.
func (p *pass) sent(of disruption.Subject, err error) {
	made := err == nil || errors.Is(err, actuate.ErrRehearsed) || errors.Is(err, actuate.ErrUncertain)
	if h := p.rollouts[vpaOf(of)]; made && h != nil && h.countedAsStart {
		h.sent = true
	}
}

// inTurnsOfStarts orders changes of workloads that have not started: namespaces take turns, those
// with the fewest starts first, so that no namespace keeps others from starting. Other changes stay
// in place.
func (p *pass) inTurnsOfStarts(actions []disruption.Action) []disruption.Action {
	type queue struct{ policy, namespace string }
	waiting := map[queue]int{}
	ranks := map[*heldWorkload]rollout.StartCount{}
	rank := func(a disruption.Action) rollout.StartCount { return ranks[p.rollouts[vpaOf(a.Subject)]] }
	var places []int
	var starts []disruption.Action
	for i, a := range actions {
		h := p.rollouts[vpaOf(a.Subject)]
		if h == nil || h.Settings.StartRate <= 0 || h.countedAsStart || !h.State.Started.IsZero() {
			continue
		}
		if at := h.index(a.UID); at < 0 || !h.Pods[at].Free {
			continue // it is part of no round
		}
		if _, known := ranks[h]; !known {
			q := queue{h.PolicyName(), a.Namespace}
			count := h.limits.StartsBy[a.Namespace]
			count.Recent += waiting[q]
			waiting[q]++
			ranks[h] = count
		}
		places, starts = append(places, i), append(starts, a)
	}
	if len(starts) == 0 {
		return actions
	}
	slices.SortStableFunc(starts, func(a, b disruption.Action) int { return rank(a).Compare(rank(b)) })
	ordered := slices.Clone(actions)
	for n, i := range places {
		ordered[i] = starts[n]
	}
	return ordered
}
