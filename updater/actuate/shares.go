package actuate

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/snapshot"
)

// byStage splits actions by the time when they run: recommendations joined with a reverted share, reverted shares,
// all other recommendations, all other shares. A share that is part of a recommendation is also listed by itself, in
// case the recommendation is not carried out.
func byStage(actions []disruption.Action) (joined, reverts, others, shares []disruption.Action) {
	for _, a := range actions {
		share := a.Share
		switch {
		case a.SharesOnly():
			share = &a
		case a.Stage == disruption.StageRevert:
			joined = append(joined, a)
		default:
			others = append(others, a)
		}
		switch {
		case share == nil:
		case share.Stage == disruption.StageRevert:
			reverts = append(reverts, *share)
		default:
			shares = append(shares, *share)
		}
	}
	slices.SortStableFunc(shares, func(a, b disruption.Action) int { return cmp.Compare(a.Stage, b.Stage) })
	return joined, reverts, others, shares
}

// markShares writes marks that do not wait for a change of their pods.
func (w *run) markShares(ctx context.Context) {
	for _, m := range w.Shares.Marks {
		pod := snapshot.CurrentPod(w.Pods, m.Of)
		if pod == nil {
			continue // it is gone
		}
		goesOn := w.inTurn(ctx, m.Of, false, func(ctx context.Context) bool {
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

// moveShares resizes pods to their shares.
func (w *run) moveShares(ctx context.Context, actions []disruption.Action) {
	for i, a := range actions {
		if !w.inTurn(ctx, a.Subject, false, func(ctx context.Context) bool { return w.moveShare(ctx, a) }) {
			klog.FromContext(ctx).V(1).Info("Ending iteration: rate limit or time allow no further share", "left", len(actions)-i)
			for _, left := range actions[i+1:] {
				if !w.resized[left.UID] {
					w.skip(left.Subject, reason.RateLimited)
				}
			}
			return
		}
	}
}

// moveShare resizes a pod to its share, and reports whether the run continues.
func (w *run) moveShare(ctx context.Context, a disruption.Action) bool {
	if w.resized[a.UID] {
		return true // it was written with another change
	}
	c := Change{Action: a, Autoscaler: w.vpa(a.Subject), Mark: w.marks[a.UID]}
	if c.Target = snapshot.CurrentPod(w.Pods, a.Subject); c.Target == nil {
		return true // it is gone
	}
	why := w.guarded(ctx, c)
	if why != "" {
		w.skip(a.Subject, why)
	}
	return why != reason.RateLimited
}

// endShares removes the mark of pods that have reached their peak.
func (w *run) endShares(ctx context.Context) {
	for _, one := range w.Shares.Ended {
		pod := snapshot.CurrentPod(w.Pods, one)
		if pod == nil {
			continue
		}
		goesOn := w.inTurn(ctx, one, false, func(ctx context.Context) bool {
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
