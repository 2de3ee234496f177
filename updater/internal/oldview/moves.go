package oldview

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/serving"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
)

// shareMoves are what a pass does with pods that share what their nodes have left, or did.
type shareMoves struct {
	pods    map[string]*DividedPod // by UID
	vpas    []disruption.VPA       // with these pods
	room    *disruption.Capacity   // what nodes have left as far as the pass is planned; nil: nobody is moved
	planned disruption.Result      // so far
	actions []disruption.Action    // in the order of turnOf, those that shrink first
	open    map[string]int         // those of them that are not written yet, by UID of the pod
	ended   []disruption.Subject   // their mark goes
	marks   []Marking              // to be written before anything is moved
}

// planReverts begins the moves of a pass: what did harm is taken back, before anything else is planned.
func (l *Planner) planReverts(ctx context.Context, d *Division, now time.Time) shareMoves {
	moves := shareMoves{pods: d.Pods, vpas: d.VPAs, ended: d.Ended, marks: d.Marks}
	if len(d.VPAs) == 0 {
		l.states = [turns]disruption.State{}
		return moves
	}
	room, err := l.Shared.Room()
	if err != nil || room == nil {
		klog.FromContext(ctx).Error(err, "It is not known what nodes have left, so no pod gets its share in this pass")
		return moves
	}
	moves.room = room
	l.planTurn(ctx, &moves, d, 0, now)
	for _, s := range moves.planned.Skipped {
		d.Pods[s.UID].Refused(s.Reason)
	}
	return moves
}

// planTurn plans for the pods of a division that have a turn.
func (l *Planner) planTurn(ctx context.Context, moves *shareMoves, d *Division, turn int, now time.Time) {
	v := disruption.View{VPAs: inTurn(d, turn), Room: moves.room}
	result := disruption.Result{State: l.states[turn]}
	err := serving.Guard(func() error {
		result = disruption.Plan(v, l.states[turn], disruption.Config{FreeResizes: true, OnlyFitting: true}, now)
		return nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "A defect of the updater: please report it. Pods do not get their shares in this pass")
	}
	keep(moves.room, v.VPAs, result.Actions)
	l.states[turn] = result.State
	moves.planned.Actions = append(moves.planned.Actions, result.Actions...)
	moves.planned.Skipped = append(moves.planned.Skipped, result.Skipped...)
}

// moveShares plans for all other pods of a division, after all else was planned: what that takes from
// nodes is not there for them. What they give is, in the next pass.
func (l *Planner) moveShares(ctx context.Context, p *Iteration, d *Division, plan disruption.Result, moves shareMoves) shareMoves {
	if moves.room == nil {
		return moves
	}
	keep(moves.room, p.Snapshot.View.VPAs, plan.Actions)
	for turn := 1; turn < turns; turn++ {
		l.planTurn(ctx, &moves, d, turn, p.now)
	}
	moves.leave(plan.Actions)
	all := moves.planned
	for i := range all.Actions {
		a := &all.Actions[i]
		a.Cause, a.MayEvict, a.Owner = d.Pods[a.UID].Cause, false, ""
	}
	slices.SortStableFunc(all.Actions, func(a, b disruption.Action) int {
		return cmp.Or(cmp.Compare(turnOf(a.Cause), turnOf(b.Cause)), first(d.Pods[a.UID].Shrinks, d.Pods[b.UID].Shrinks))
	})
	moves.are(all.Actions)
	p.said(all)
	return moves
}

// leave forgets why pods are left alone that are evicted instead.
func (m *shareMoves) leave(actions []disruption.Action) {
	for _, a := range actions {
		if a.Evict && m.pods[a.UID] != nil {
			m.planned.Skipped = slices.DeleteFunc(m.planned.Skipped, func(s disruption.Skip) bool { return s.UID == a.UID })
		}
	}
}

// turns is how many groups of pods are planned for one after the other.
const turns = 3

// turnOf returns the turn of pods that are moved for a cause: first what did harm is taken back,
// then what ended, so that shares get what these leave.
func turnOf(c disruption.Cause) int {
	switch c {
	case disruption.ShareReverted:
		return 0
	case disruption.ShareEnded:
		return 1
	}
	return 2
}

// inTurn returns the VPAs of a division with those of their pods that have a turn.
func inTurn(d *Division, turn int) (vpas []disruption.VPA) {
	for _, v := range d.VPAs {
		v.Pods = slices.DeleteFunc(slices.Clone(v.Pods), func(p disruption.Pod) bool { return turnOf(d.Pods[p.UID].Cause) != turn })
		if len(v.Pods) > 0 {
			vpas = append(vpas, v)
		}
	}
	return vpas
}

// are sets which moves there are; none is written yet.
func (m *shareMoves) are(actions []disruption.Action) {
	m.actions, m.open = actions, make(map[string]int, len(actions))
	for i := range actions {
		m.open[actions[i].UID] = i
	}
}

// reverts returns how many of the actions take back what did harm. They come first.
func (m *shareMoves) reverts() int {
	n := slices.IndexFunc(m.actions, func(a disruption.Action) bool { return turnOf(a.Cause) != 0 })
	if n < 0 {
		return len(m.actions)
	}
	return n
}

// joined takes out of the actions of a plan those that are made together with one that takes back
// what did harm.
func (m *shareMoves) joined(actions []disruption.Action) (joined, others []disruption.Action) {
	reverts := m.reverts()
	if reverts == 0 {
		return nil, actions
	}
	for _, a := range actions {
		if i, moves := m.open[a.UID]; moves && i < reverts && joins(a) {
			joined = append(joined, a)
		} else {
			others = append(others, a)
		}
	}
	return joined, others
}

// joins reports whether a share can be given with a change: not with one that restarts a container, or
// evicts.
func joins(a disruption.Action) bool { return !a.Evict && !a.Restarts && !a.Cause.Shares() }

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
func keep(room *disruption.Capacity, vpas []disruption.VPA, actions []disruption.Action) {
	if room == nil || len(actions) == 0 {
		return
	}
	needed := make(map[string]*disruption.Action, len(actions))
	for i := range actions {
		needed[actions[i].UID] = &actions[i]
	}
	for i := range vpas {
		for j := range vpas[i].Pods {
			pod := &vpas[i].Pods[j]
			if a := needed[pod.UID]; a != nil {
				room.Keep(pod.Need(), a.Evict)
			}
		}
	}
}

// said puts what sharing says of pods in the place of what the other plan says, where that is
// only that nothing is to be done.
func (p *Iteration) said(moves disruption.Result) {
	about := make(map[string]reason.Reason, len(moves.Actions)+len(moves.Skipped))
	for _, a := range moves.Actions {
		about[a.UID] = ""
	}
	for _, s := range moves.Skipped {
		about[s.UID] = s.Reason
	}
	p.Skipped = slices.DeleteFunc(slices.Clone(p.Skipped), func(s disruption.Skip) bool { // the plan goes on to have all
		_, known := about[s.UID]
		return known && atRest(s.Reason)
	})
	for _, s := range p.Skipped {
		delete(about, s.UID)
	}
	for _, s := range moves.Skipped {
		if _, stays := about[s.UID]; stays {
			p.Skipped = append(p.Skipped, s)
		}
	}
}

// atRest reports whether a reason says no more than that a pod has what it is to have.
func atRest(r reason.Reason) bool {
	switch r {
	case reason.Unchanged, reason.NoRecommendation, reason.SmallChange, reason.TooYoung, reason.HasShare:
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

// markOf returns what is to be written on a pod before it gets its share; nil: it is written.
func (m *shareMoves) markOf(uid string) *sharing.Mark {
	if moved := m.pods[uid]; !moved.Marked {
		return &moved.Mark
	}
	return nil
}

// made notes that the share of a pod was written, and reports whether it made the pod smaller.
func (m *shareMoves) made(uid string) (smaller bool) {
	_, open := m.open[uid]
	delete(m.open, uid)
	return open && m.pods[uid].Shrinks
}
