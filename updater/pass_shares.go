package updater

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/updater/actuate"
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

// endMoves records that a pod was changed, so that its share does not move again in this iteration.
func (p *pass) endMoves(uid string) {
	if p.resized == nil {
		p.resized = map[string]bool{}
	}
	p.resized[uid] = true
}

// markShares writes marks that do not wait for a change of their pods.
func (p *pass) markShares(ctx context.Context) {
	for _, m := range p.division.Marks {
		pod := p.pod(m.Of)
		if pod == nil {
			continue // it is gone
		}
		goesOn := p.inTurn(ctx, m.Of, false, func(ctx context.Context) bool {
			if ctx.Err() != nil {
				return false
			}
			if err := p.executor.MarkShare(ctx, pod, m.Mark); actuate.Gone(err) {
				return true
			} else if err != nil {
				klog.FromContext(ctx).Error(err, "Failed to write the share of a pod, trying again in the next pass", "pod", klog.KObj(pod))
			} else {
				delete(p.division.Moves, m.Of.UID)
			}
			return true
		})
		if !goesOn {
			return
		}
	}
}

// carryOutShares resizes pods to their shares.
func (p *pass) carryOutShares(ctx context.Context, actions []disruption.Action) {
	for i, a := range actions {
		if !p.inTurn(ctx, a.Subject, false, func(ctx context.Context) bool { return p.carryOutShare(ctx, a) }) {
			klog.FromContext(ctx).V(1).Info("Pass ended: neither rate limit nor time allow a further pod to get its share before the next one", "left", len(actions)-i)
			for _, left := range actions[i+1:] {
				if !p.resized[left.UID] {
					p.skip(left.Subject, reason.RateLimited)
				}
			}
			return
		}
	}
}

// carryOutShare resizes a pod to its share, and reports whether the iteration goes on.
func (p *pass) carryOutShare(ctx context.Context, a disruption.Action) bool {
	if p.resized[a.UID] {
		return true // it was written with another change
	}
	c := actuate.Change{Action: a, Autoscaler: p.planned(a.Subject), Mark: p.division.Moves[a.UID]}
	if c.Target = p.pod(a.Subject); c.Target == nil {
		return true // it is gone
	}
	why := p.make(ctx, c)
	if why != "" {
		p.skip(a.Subject, why)
	}
	return why != reason.RateLimited
}

// endShares removes the mark of pods that have reached their peak.
func (p *pass) endShares(ctx context.Context) {
	for _, one := range p.division.Ended {
		pod := p.pod(one)
		if pod == nil {
			continue
		}
		goesOn := p.inTurn(ctx, one, false, func(ctx context.Context) bool {
			if ctx.Err() != nil {
				return false
			}
			if err := p.executor.RemoveShare(ctx, pod); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to remove the share of a pod, trying again in the next pass", "pod", klog.KObj(pod))
			}
			return true
		})
		if !goesOn {
			return
		}
	}
}
