package rollouts

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/updater/report"
)

// Save stores the states of rollouts without a change of a pod, such as the end of a round or a promotion, and announces
// them. It remembers the free pods that the plan does not change, so that others are first in the next iteration.
func (h *Holds) Save(ctx context.Context, planned []disruption.Action) {
	passed, changes := map[string]time.Time{}, map[string]bool{}
	for i := range planned {
		if a := &planned[i]; !a.SharesOnly() {
			changes[a.UID] = true
		}
	}
	observed, conflicts := 0, 0
	var turned []*Hold
	for v := range h.view.VPAs { // in order
		name := h.name(v)
		if e := h.policy(v); e != nil && e.Rival != "" && conflicts < report.MaxEvents && h.announcePolicyConflict(name, e) {
			conflicts++
		}
		hold := h.holds[name]
		if hold == nil {
			continue
		}
		for i := range hold.input.Pods {
			pod := &hold.input.Pods[i]
			if hold.Pods[i].Free && !changes[pod.UID] {
				passed[pod.UID] = h.now
			} else if at, known := h.passed[pod.UID]; known {
				passed[pod.UID] = at
			}
			if !pod.Observed.IsZero() {
				observed++
			}
		}
		if !hold.stored && hold.turned() {
			turned = append(turned, hold)
		}
	}
	h.storeDeferred(ctx, turned)
	for v := range h.view.VPAs {
		name := h.name(v)
		if hold := h.holds[name]; hold != nil {
			h.announce(name, hold)
		}
	}
	h.Announcer.Forget(h.now)
	if len(h.holds) > 0 || len(h.passed) > 0 {
		h.Metrics.Observed(observed)
	}
	h.passed = passed
	h.reportFuses(ctx)
}

func (h *Holds) name(v int) cache.ObjectName {
	return cache.NewObjectName(h.view.VPAs[v].Namespace, h.view.VPAs[v].Name)
}

// turned reports whether the state of the rollout differs from the stored one. A round without changes yet, and a
// workload without a record, do not count.
func (h *Hold) turned() bool {
	return len(h.before.Rounds) > 0 && h.State.Turned(h.before)
}

// maxDeferredWrites is the maximum number of records that an iteration writes without a change of a pod. The others
// follow in the next iteration.
const maxDeferredWrites = 100

// storeDeferred writes records without a change of a pod. Namespaces take turns, starting after the namespace served
// last, so that none delays the others for more than an iteration.
func (h *Holds) storeDeferred(ctx context.Context, all []*Hold) {
	namespace := func(one *Hold) string { return one.Workload.Key.Namespace }
	if next := slices.IndexFunc(all, func(one *Hold) bool { return namespace(one) > h.lastStored }); next > 0 {
		all = slices.Concat(all[next:], all[:next])
	}
	written := 0
	fairwork.Run(fairwork.RoundRobin(all, namespace), 1, namespace,
		func(*Hold) bool { return written < maxDeferredWrites && ctx.Err() == nil },
		func(_ int, one *Hold) {
			if h.limited[namespace(one)] {
				return // the next iteration tries again
			}
			written++
			h.lastStored = namespace(one)
			_ = h.store(ctx, one) // a failure is logged, and the next iteration tries again
		})
}
