package main

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/view"
)

// shareMoves are what a pass does with pods that share what their nodes have left, or did.
type shareMoves struct {
	pods    map[string]*view.DividedPod // by UID
	actions []disruption.Action         // those that only shrink first
	open    map[string]int              // those of them that are not written yet, by UID of the pod
	ended   []disruption.Subject        // their mark goes
	marks   []view.Marking              // to be written before anything is moved
}

// moveShares plans for the pods of a division, after all else was planned: what that takes from
// nodes is not there for them. What they give is, in the next pass.
func (l *Loop) moveShares(ctx context.Context, p *pass, d *view.Division, plan disruption.Result) shareMoves {
	moves := shareMoves{pods: d.Pods, ended: d.Ended, marks: d.Marks}
	if len(d.VPAs) == 0 {
		l.sharing.state = disruption.State{}
		return moves
	}
	config := disruption.Config{FreeResizes: true, OnlyFitting: true}
	room, err := l.sharing.capacity.Room()
	if err != nil || room == nil {
		klog.FromContext(ctx).Error(err, "It is not known what nodes have left, so no pod gets its share in this pass")
		return moves
	}
	keep(room, &p.snapshot.View, plan.Actions)
	result := disruption.Result{State: l.sharing.state}
	err = view.Guard(func() error {
		result = disruption.Plan(disruption.View{VPAs: d.VPAs, Room: room}, l.sharing.state, config, p.now)
		return nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "A defect of the updater: please report it. No pod gets its share in this pass")
	}
	l.sharing.state = result.State
	for i := range result.Actions {
		a := &result.Actions[i]
		a.Cause, a.MayEvict, a.Owner = d.Pods[a.UID].Cause, false, ""
	}
	slices.SortStableFunc(result.Actions, func(a, b disruption.Action) int { return first(d.Pods[a.UID].Shrinks, d.Pods[b.UID].Shrinks) })
	moves.are(result.Actions)
	p.said(result)
	return moves
}

// are sets which moves there are; none is written yet.
func (m *shareMoves) are(actions []disruption.Action) {
	m.actions, m.open = actions, make(map[string]int, len(actions))
	for i := range actions {
		m.open[actions[i].UID] = i
	}
}

// first orders what holds before what does not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// keep takes from the room of nodes what changes need.
func keep(room *disruption.Capacity, v *disruption.View, actions []disruption.Action) {
	needed := make(map[string]*disruption.Action, len(actions))
	for i := range actions {
		needed[actions[i].UID] = &actions[i]
	}
	for i := range v.VPAs {
		for j := range v.VPAs[i].Pods {
			pod := &v.VPAs[i].Pods[j]
			if a := needed[pod.UID]; a != nil {
				room.Keep(pod.Need(), a.Evict)
			}
		}
	}
}

// said puts what sharing says of pods in the place of what the other plan says, where that is
// only that nothing is to be done.
func (p *pass) said(moves disruption.Result) {
	about := make(map[string]disruption.Reason, len(moves.Actions)+len(moves.Skipped))
	for _, a := range moves.Actions {
		about[a.UID] = ""
	}
	for _, s := range moves.Skipped {
		about[s.UID] = s.Reason
	}
	p.skipped = slices.DeleteFunc(slices.Clone(p.skipped), func(s disruption.Skip) bool { // the plan goes on to have all
		_, known := about[s.UID]
		return known && atRest(s.Reason)
	})
	for _, s := range p.skipped {
		delete(about, s.UID)
	}
	for _, s := range moves.Skipped {
		if _, stays := about[s.UID]; stays {
			p.skipped = append(p.skipped, s)
		}
	}
}

// atRest reports whether a reason says no more than that a pod has what it is to have.
func atRest(r disruption.Reason) bool {
	switch r {
	case disruption.Unchanged, disruption.NoRecommendation, disruption.SmallChange, disruption.TooYoung, disruption.HasShare:
		return true
	}
	return false
}

// shareOf returns what a pod is to get of what it shares; nil: nothing else than it has.
func (m *shareMoves) shareOf(uid string) *disruption.Action {
	i, open := m.open[uid]
	if !open {
		return nil
	}
	return &m.actions[i]
}

// made notes that the share of a pod was written, or refused.
func (m *shareMoves) made(uid string) {
	delete(m.open, uid)
}

// withShare adds to a change of a pod what it gets of what it shares, so that both are one resize.
// One that restarts a container, or evicts, is made alone.
func (p *pass) withShare(c actuate.Change) actuate.Change {
	if c.Evict || c.Restarts || c.Cause.Shares() {
		return c
	}
	if a := p.shares.shareOf(c.UID); a != nil {
		c.Share, c.Mark = a.Containers, &p.shares.pods[c.UID].Mark
	}
	return c
}

// markShares writes marks that do not wait for a change of their pods.
func (p *pass) markShares(ctx context.Context) {
	for _, m := range p.shares.marks {
		pod := p.snapshot.Pod(m.Of)
		if pod == nil {
			continue // it is gone
		}
		if ctx.Err() != nil {
			return
		}
		if err := p.executor.MarkShare(ctx, pod, m.Mark); err != nil {
			klog.FromContext(ctx).Error(err, "It could not be written on the pod what it shares; the next pass tries again", "pod", klog.KObj(pod))
		}
	}
}

// carryOutShares gives pods what they are to have of what they share, and takes the mark off
// those that have their peak again.
func (p *pass) carryOutShares(ctx context.Context) {
	for i, a := range p.shares.actions {
		if p.shares.shareOf(a.UID) == nil {
			continue // it was written with another change
		}
		c := actuate.Change{Action: a, Reading: p.snapshot.Reading(vpaOf(a.Subject)), Mark: &p.shares.pods[a.UID].Mark}
		if c.Target = p.snapshot.Pod(a.Subject); c.Target == nil {
			continue // it is gone
		}
		if reason := p.make(ctx, c); reason == disruption.RateLimited {
			klog.FromContext(ctx).V(1).Info("Pass ended: neither rate limit nor time allow a further pod to get its share before the next one", "left", len(p.shares.open))
			for _, left := range p.shares.actions[i:] {
				if p.shares.shareOf(left.UID) != nil {
					p.skip(left.Subject, reason)
				}
			}
			return
		} else if reason != "" {
			p.skip(a.Subject, reason)
		}
	}
	for _, one := range p.shares.ended {
		pod := p.snapshot.Pod(one)
		if pod == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err := p.executor.RemoveShare(ctx, pod); err != nil {
			klog.FromContext(ctx).Error(err, "The pod shares no more, and could not be told so; the next pass tries again", "pod", klog.KObj(pod))
		}
	}
}

// record notes what came of a change.
func (p *pass) record(a disruption.Action, o disruption.Outcome, now time.Time) {
	if a.Cause.Shares() && !a.Evict {
		p.sharing.state.Record(a, o, now)
		return
	}
	p.state.Record(a, o, now)
}
