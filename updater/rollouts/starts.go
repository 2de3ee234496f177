package rollouts

import (
	"slices"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/rollout"
)

// takeStart reports whether the start rate allows a change of the workload, and counts its first
// change as a start. Starts are counted here and not when changes are planned, so that a workload
// that cannot be changed uses none.
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

// ReturnStart gives back the start of a workload without a changed pod.
func (h *Holds) ReturnStart(of disruption.Subject) {
	if hold := h.Of(of); hold != nil && hold.countedAsStart && !hold.sent {
		hold.limits.Starts++
		hold.countedAsStart = false
	}
}

// Sent records that a pod of a workload was changed, or may have been.
func (h *Holds) Sent(of disruption.Subject) {
	if hold := h.Of(of); hold != nil && hold.countedAsStart {
		hold.sent = true
	}
}

// OrderStarts orders the changes of workloads that have not started. Namespaces take turns, those with the fewest starts
// first, so that no namespace prevents the starts of others. Other changes stay in place.
func (h *Holds) OrderStarts(actions []disruption.Action) []disruption.Action {
	type queue struct{ policy, namespace string }
	waiting := map[queue]int{}
	ranks := map[*Hold]rollout.StartCount{}
	rank := func(a disruption.Action) rollout.StartCount { return ranks[h.Of(a.Subject)] }
	var places []int
	var starts []disruption.Action
	for i, a := range actions {
		hold := h.Of(a.Subject)
		if hold == nil || hold.Settings.StartRate <= 0 || hold.countedAsStart || !hold.State.Started.IsZero() {
			continue
		}
		if at := hold.index(a.UID); at < 0 || !hold.Pods[at].Free {
			continue // part of no round
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
