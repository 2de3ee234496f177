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

// slowNamespaceTTL is how long the writes of a namespace come last after a write that
// took longer than fairwork.NamespaceTime. A faster write ends it. It spans many runs, because a
// namespace with slow writes may have none in most of them.
const slowMemory = time.Hour

// writeTurns are the writes of a run that wait for the writes of all other namespaces.
type writeTurns struct {
	used      map[string]time.Duration // by namespace
	late      []lateWrite
	lateBegun bool // late writes are being made
}

// turnEnded is the result of a change whose checks needed more than the turn. It was not tried, and
// is repeated as a late write of the same run.
const turnEnded reason.Reason = "TurnEnded"

const (
	// maxTurnTime bounds all requests of a write while other namespaces wait. An unresponsive
	// admission webhook with failurePolicy Ignore may take longer. Then the namespace comes last.
	maxTurnTime = 6 * time.Second
	// maxLateTurnTime bounds all requests of a late write.
	maxLateTurnTime = time.Minute
)

// lateWrite is a write of a namespace that has used its time.
type lateWrite struct {
	about    disruption.Subject
	disrupts bool                           // needs more requests than other writes
	do       func(ctx context.Context) bool // reports whether the run continues
}

// writeNowOrLater makes a write at once in a turn of its namespace, or later if the namespace has
// used its time. It reports whether the run continues.
func (w *run) writeNowOrLater(ctx context.Context, about disruption.Subject, disrupts bool, do func(ctx context.Context) bool) bool {
	namespace := about.Namespace
	if since, slow := w.slow[namespace]; slow && w.now.Sub(since) >= slowMemory {
		delete(w.slow, namespace)
	} else if slow || w.turns.used[namespace] >= fairwork.NamespaceTime {
		w.turns.late = append(w.turns.late, lateWrite{about: about, disrupts: disrupts, do: do})
		return true
	}
	turn := fairwork.Turn(ctx, maxTurnTime)
	goesOn := do(turn)
	took := fairwork.Used(turn)
	w.turns.used[namespace] += took
	if took > fairwork.NamespaceTime && goesOn { // a run that ends is short of time for all namespaces
		w.slow[namespace] = w.now
	}
	return goesOn
}

// maxLateDelay is the maximum delay of an early iteration by late writes.
const lateTime = 3 * time.Second

// runLate makes the late writes in namespace turns. Namespaces without a turn in the last run come
// first, and disruptions come last in each namespace. Every maxLateDelay it ends if pods wait for
// memory after a kill. The iteration is then repeated, because users can cause kills at any time.
func (w *run) runLate(ctx context.Context) {
	all, served, ended, checked := w.turns.late, map[string]bool{}, false, time.Now()
	w.turns.late, w.turns.lateBegun = nil, true
	rank := func(late lateWrite) (rank int) {
		if !w.unserved[late.about.Namespace] {
			rank += 2
		}
		if late.disrupts {
			rank++
		}
		return rank
	}
	slices.SortStableFunc(all, func(a, b lateWrite) int { return cmp.Compare(rank(a), rank(b)) })
	left := fairwork.Run(all, 1, func(late lateWrite) string { return late.about.Namespace },
		func(lateWrite) bool {
			if w.OOMKills != nil && time.Since(checked) >= lateTime {
				w.done.Interrupted, checked = w.OOMKills.Waiting(ctx), time.Now()
			}
			return !ended && !w.done.Interrupted
		},
		func(_ int, late lateWrite) {
			turn := fairwork.Turn(ctx, maxLateTurnTime)
			served[late.about.Namespace] = true
			if ended = !late.do(turn); ended {
				w.cursor = snapshot.VPAOf(late.about)
			} else if fairwork.Used(turn) < fairwork.NamespaceTime {
				delete(w.slow, late.about.Namespace)
			}
		})
	for namespace := range served {
		delete(w.unserved, namespace)
	}
	for _, late := range left {
		if !served[late.about.Namespace] {
			w.unserved[late.about.Namespace] = true
		}
		w.skip(late.about, reason.RateLimited)
	}
}

// recordBackoffs writes backoffs on pods, which survive a restart. Without time left it continues
// only as long as the API server accepts them, because the lease waits.
func (w *run) recordBackoffs(ctx context.Context) {
	for _, one := range w.Backoffs {
		pod := snapshot.CurrentPod(w.Pods, one.Subject)
		if pod == nil {
			continue
		}
		goesOn := w.writeNowOrLater(ctx, one.Subject, false, func(ctx context.Context) bool {
			err := w.Executor.RecordBackoff(ctx, pod, one.Backoff)
			if err == nil || Gone(err) || client.IsWriteLimited(err) { // a later iteration writes it
				return true
			}
			klog.FromContext(ctx).Error(err, "Failed to write a back-off on a pod, a restart forgets it", "pod", klog.KRef(one.Namespace, one.Pod), "vpa", one.VPA)
			return ctx.Err() == nil
		})
		if !goesOn {
			return
		}
	}
}

func (w *run) markShares(ctx context.Context) {
	for _, m := range w.Shares.Marks {
		pod := snapshot.CurrentPod(w.Pods, m.Of)
		if pod == nil {
			continue // gone
		}
		goesOn := w.writeNowOrLater(ctx, m.Of, false, func(ctx context.Context) bool {
			if ctx.Err() != nil {
				return false
			}
			if err := w.Executor.MarkShare(ctx, pod, m.Mark); Gone(err) {
				return true
			} else if err != nil {
				klog.FromContext(ctx).Error(err, "Failed to write the share of a pod, trying again in the next iteration", "pod", klog.KObj(pod))
			} else {
				delete(w.marks, m.Of.UID)
			}
			return true
		})
		if !goesOn {
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
		goesOn := w.writeNowOrLater(ctx, one, false, func(ctx context.Context) bool {
			if ctx.Err() != nil {
				return false
			}
			if err := w.Executor.RemoveShare(ctx, pod); err != nil && !client.IsWriteLimited(err) {
				klog.FromContext(ctx).Error(err, "Failed to remove the share of a pod, trying again in the next iteration", "pod", klog.KObj(pod))
			}
			return true
		})
		if !goesOn {
			return
		}
	}
}
