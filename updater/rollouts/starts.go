package rollouts

import (
	"slices"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/rollout"
)

// takeStart reports whether the start rate allows a change of the workload, and counts its first
// change. Planned changes do not count, so that a workload that cannot change consumes no start.
func (h *Hold) takeStart() bool {
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

// ReturnStart undoes the start of a workload without a changed pod.
func (h *Holds) ReturnStart(of disruption.Subject) {
	if hold := h.HoldOf(of); hold != nil && hold.countedAsStart && !hold.sent {
		hold.limits.Starts++
		hold.countedAsStart = false
	}
}

// Sent records that a pod of a workload was or may have been changed.
func (h *Holds) Sent(of disruption.Subject) {
	if hold := h.HoldOf(of); hold != nil && hold.countedAsStart {
		hold.sent = true
	}
}

// OrderStarts reorders the changes of workloads that have not started. Namespaces take turns, the
// one with the fewest starts first, so that no namespace starves others. Other changes keep their
// position.
func (h *Holds) OrderStarts(actions []disruption.Action) []disruption.Action {
	type queue struct{ policy, namespace string }
	waiting := map[queue]int{}
	ranks := map[*Hold]rollout.StartCount{}
	rank := func(a disruption.Action) rollout.StartCount { return ranks[h.HoldOf(a.Subject)] }
	var places []int
	var starts []disruption.Action
	for i, a := range actions {
		hold := h.HoldOf(a.Subject)
		if hold == nil || hold.Settings.StartRate <= 0 || hold.countedAsStart || !hold.State.Started.IsZero() {
			continue
		}
		if at := hold.index(a.UID); at < 0 || !hold.Pods[at].Free {
			continue // not part of a round
		}
		if _, known := ranks[hold]; !known {
			q := queue{hold.PolicyName(), a.Namespace}
			count := hold.limits.StartsBy[a.Namespace]
			count.Recent += waiting[q]
			waiting[q]++
			ranks[hold] = count
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
