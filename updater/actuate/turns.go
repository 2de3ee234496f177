package actuate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/snapshot"
)

// slowNamespaceTTL is how long a namespace comes last after a write over fairwork.NamespaceTime, or
// until a faster one. It spans many runs, because most runs may have no slow writes.
const slowNamespaceTTL = time.Hour

// writeTurns are the writes of a run that wait for the writes of all other namespaces.
type writeTurns struct {
	used      map[string]time.Duration // by namespace
	late      []lateWrite
	lateBegun bool // late writes are being made
}

// turnEnded is the result of a change not tried within the turn. A late write repeats it.
const turnEnded reason.Reason = "TurnEnded"

const (
	// maxTurnTime bounds all requests of a write while other namespaces wait. An unresponsive
	// admission webhook with failurePolicy Ignore may take longer. Then the namespace comes last.
	maxTurnTime     = 6 * time.Second
	maxLateTurnTime = time.Minute
)

type lateWrite struct {
	subject  disruption.Subject
	disrupts bool                           // needs more requests than other writes
	do       func(ctx context.Context) bool // reports whether the run continues
}

// writeNowOrLater delays a write of a slow namespace. It reports whether the run continues.
func (w *run) writeNowOrLater(ctx context.Context, subject disruption.Subject, disrupts bool, do func(ctx context.Context) bool) bool {
	namespace := subject.Namespace
	if since, slow := w.slowNamespaces[namespace]; slow && w.now.Sub(since) >= slowNamespaceTTL {
		delete(w.slowNamespaces, namespace)
	} else if slow || w.turns.used[namespace] >= fairwork.NamespaceTime {
		w.turns.late = append(w.turns.late, lateWrite{subject: subject, disrupts: disrupts, do: do})
		return true
	}
	turn := fairwork.Turn(ctx, maxTurnTime)
	continues := do(turn)
	used := fairwork.Used(turn)
	w.turns.used[namespace] += used
	if used > fairwork.NamespaceTime && continues { // a run that ends is short of time for all namespaces
		w.slowNamespaces[namespace] = w.now
	}
	return continues
}

// maxLateDelay is the maximum delay of an early iteration by late writes.
const maxLateDelay = 3 * time.Second

// runLate makes the late writes in turns: namespaces without a turn in the last run first,
// disruptions last. Every maxLateDelay it ends if pods wait for memory after a kill. The iteration
// is then repeated, because users can cause kills at any time.
func (w *run) runLate(ctx context.Context) {
	all, served, ended, checked := w.turns.late, map[string]bool{}, false, time.Now()
	w.turns.late, w.turns.lateBegun = nil, true
	rank := func(late lateWrite) (rank int) {
		if !w.unservedNamespaces[late.subject.Namespace] {
			rank += 2
		}
		if late.disrupts {
			rank++
		}
		return rank
	}
	slices.SortStableFunc(all, func(a, b lateWrite) int { return cmp.Compare(rank(a), rank(b)) })
	left := fairwork.Run(all, 1, func(late lateWrite) string { return late.subject.Namespace },
		func(lateWrite) bool {
			if w.Interrupter != nil && time.Since(checked) >= maxLateDelay {
				w.done.Interrupted, checked = w.Interrupter.HasPendingOOM(ctx), time.Now()
			}
			return !ended && !w.done.Interrupted
		},
		func(_ int, late lateWrite) {
			turn := fairwork.Turn(ctx, maxLateTurnTime)
			served[late.subject.Namespace] = true
			if ended = !late.do(turn); ended {
				w.cursor = snapshot.VPAOf(late.subject)
			} else if fairwork.Used(turn) < fairwork.NamespaceTime {
				delete(w.slowNamespaces, late.subject.Namespace)
			}
		})
	for namespace := range served {
		delete(w.unservedNamespaces, namespace)
	}
	for _, late := range left {
		if !served[late.subject.Namespace] {
			w.unservedNamespaces[late.subject.Namespace] = true
		}
		w.skip(late.subject, reason.RateLimited)
	}
}

// recordBackoffs ends at the first refusal without time left, because the lease waits.
func (w *run) recordBackoffs(ctx context.Context) {
	for _, backoff := range w.Backoffs {
		pod := snapshot.CurrentPod(w.Pods, backoff.Subject)
		if pod == nil {
			continue
		}
		continues := w.writeNowOrLater(ctx, backoff.Subject, false, func(ctx context.Context) bool {
			err := w.Executor.RecordBackoff(ctx, pod, backoff.Backoff)
			if err == nil || IsGone(err) || client.IsWriteLimited(err) { // a later iteration writes it
				return true
			}
			klog.FromContext(ctx).Error(err, "Failed to write a backoff on a pod, a restart of the updater loses it", "pod", klog.KRef(backoff.Namespace, backoff.Pod), "vpa", backoff.VPA)
			return ctx.Err() == nil
		})
		if !continues {
			return
		}
	}
}

func (w *run) markShares(ctx context.Context) {
	for _, m := range w.Shares.Marks {
		pod := snapshot.CurrentPod(w.Pods, m.Subject)
		if pod == nil {
			continue // gone
		}
		continues := w.writeNowOrLater(ctx, m.Subject, false, func(ctx context.Context) bool {
			if ctx.Err() != nil {
				return false
			}
			if err := w.Executor.MarkShare(ctx, pod, m.Mark); IsGone(err) {
				return true
			} else if err != nil {
				klog.FromContext(ctx).Error(err, "Failed to write the share of a pod, trying again in the next iteration", "pod", klog.KObj(pod))
			} else {
				delete(w.marks, m.Subject.UID)
			}
			return true
		})
		if !continues {
			return
		}
	}
}

func (w *run) endShares(ctx context.Context) {
	for _, one := range w.Shares.Ended {
		pod := snapshot.CurrentPod(w.Pods, one)
		if pod == nil {
			continue
		}
		continues := w.writeNowOrLater(ctx, one, false, func(ctx context.Context) bool {
			if ctx.Err() != nil {
				return false
			}
			if err := w.Executor.RemoveShare(ctx, pod); err != nil && !client.IsWriteLimited(err) {
				klog.FromContext(ctx).Error(err, "Failed to remove the share of a pod, trying again in the next iteration", "pod", klog.KObj(pod))
			}
			return true
		})
		if !continues {
			return
		}
	}
}
