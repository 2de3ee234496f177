package disruption

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// Share is the part of a pod's target that depends on the other pods of its node.
type Share struct {
	Kinds    [resources.Kinds]bool    // shared kinds, absent from Container.Target
	Cause    Cause                    // ShareReverted, ShareEnded or Shared
	Target   []policy.ContainerTarget // for Kinds, by container; nil: the pod keeps its requests
	Peak     []policy.ContainerTarget // for all kinds, by container: the target of a new pod
	Shrinks  bool                     // Target lowers a request
	MayEvict bool                     // evict a pod that ran out of memory if its node refuses Target
	Leaves   bool                     // the pod leaves its node: bases exceed the node
	Skip     reason.Reason            // why the pod keeps its share for now
	Held     reason.Reason            // why its rollout forbids an eviction for its share
}

// Leaves reports whether the pod leaves its node.
func (p *Pod) Leaves() bool { return p.Share != nil && p.Share.Leaves }

// EvictableForShare reports whether the pod may be evicted for its share.
func (p *Pod) EvictableForShare() bool { return p.Share != nil && (p.Share.Leaves || p.Share.MayEvict) }

// peak returns the targets of a new pod by container, or nil if they are the same.
func (p *Pod) peak() []policy.ContainerTarget {
	if p.Share == nil {
		return nil
	}
	return p.Share.Peak
}

// Stage orders the actions of a plan.
type Stage int8

// The stages, in order.
const (
	StageRevert         Stage = iota - 1 // revert harmful shares, with other changes of the same resize
	StageRecommendation                  // recommendations, with shares
	StageEnd                             // shares that end
	StageShrink                          // shares that shrink
	StageGrow                            // other shares
)

func inStages(actions []Action) []Action {
	slices.SortStableFunc(actions, func(a, b Action) int { return cmp.Compare(a.Stage, b.Stage) })
	return actions
}

type shareStep uint8

// The steps. Freed capacity is available from the next iteration on.
const (
	revertStep shareStep = iota
	endStep
	moveStep
	shareSteps
)

func stepOf(c Cause) shareStep {
	switch c {
	case ShareReverted:
		return revertStep
	case ShareEnded:
		return endStep
	}
	return moveStep
}

func (s *Share) stage() Stage {
	switch {
	case s.Cause == ShareReverted:
		return StageRevert
	case s.Cause == ShareEnded:
		return StageEnd
	case s.Shrinks:
		return StageShrink
	}
	return StageGrow
}

// SharesOnly reports whether an action applies a share and nothing else.
func (a *Action) SharesOnly() bool { return a.Cause.Shares() && !a.Evict }

// sharePlan plans shares in place, where the node has room, without budget or stabilization.
type sharePlan struct {
	now      time.Time
	previous [shareSteps]PodStates
	room     *Capacity // free after all planned actions; nil: unknown, no share moves
	vpas     [shareSteps][]*VPA
	moving   map[string]*Share // by pod UID

	states   [shareSteps]PodStates
	actions  []Action
	skipped  map[string]reason.Reason // by pod UID
	problems []Problem
}

func newSharePlan(order []*VPA, room *Capacity, before [shareSteps]PodStates, now time.Time) *sharePlan {
	s := &sharePlan{now: now, previous: before, room: room, skipped: map[string]reason.Reason{}}
	for _, v := range order {
		if !v.Outdated { // otherwise the peaks are unknown
			s.add(v)
		}
	}
	return s
}

// add puts a copy of each pod with a Share.Target into a copy of the VPA for its step. The copy has
// mode InPlace, and the share as target.
func (s *sharePlan) add(v *VPA) {
	var parts [shareSteps]*VPA
	for i := range v.Pods {
		pod := v.Pods[i]
		share := pod.Share
		if share == nil || share.Target == nil {
			continue
		}
		step := stepOf(share.Cause)
		if parts[step] == nil {
			part := *v
			part.Mode, part.Ungated, part.Held, part.Requirements, part.Pods = InPlace, true, "", nil, nil
			part.Groups = slices.Clone(v.Groups)
			for g := range part.Groups {
				part.Groups[g].Key = "" // share outcomes are not recorded by owner
			}
			parts[step] = &part
			s.vpas[step] = append(s.vpas[step], &part)
		}
		if s.moving == nil {
			s.moving = map[string]*Share{}
		}
		s.moving[pod.UID] = share
		// Shares ignore rollouts and budgets, and pods with exclusive CPUs do not share.
		// planVPA skips a share that must wait with the reason in Held.
		pod.Share, pod.Held, pod.MemoryOnly, pod.StaticCPU, pod.Budgets = nil, share.Skip, false, false, nil
		pod.Containers = slices.Clone(pod.Containers)
		for c := range pod.Containers {
			pod.Containers[c].Target = share.Target[c]
		}
		parts[step].Pods = append(parts[step].Pods, pod)
	}
}

func (s *sharePlan) plan(step shareStep) {
	if len(s.vpas[step]) == 0 {
		return
	}
	if s.room == nil {
		s.states[step] = s.previous[step]
		return
	}
	p := plan{config: Config{FreeResizes: true, onlyFitting: true}, now: s.now, previous: s.previous[step], room: s.room}
	p.result.State.Recommended = newPodStates()
	p.planVPAs(s.vpas[step])
	for i := range p.result.Actions {
		a := &p.result.Actions[i]
		share := s.moving[a.UID]
		a.Cause, a.Stage, a.Shrinks = share.Cause, share.stage(), share.Shrinks
	}
	s.states[step] = p.result.State.Recommended
	s.actions, s.problems = append(s.actions, p.result.Actions...), append(s.problems, p.result.Problems...)
	for _, skip := range p.result.Skipped {
		s.skipped[skip.UID] = skip.Reason
	}
}

func (s *sharePlan) refused() map[string]reason.Reason {
	refused := map[string]reason.Reason{}
	for uid, why := range s.skipped {
		if s.moving[uid].MayEvict {
			refused[uid] = why
		}
	}
	return refused
}

// reserveActions reserves the need of planned recommendations, so that shares do not use it.
func (s *sharePlan) reserveActions(order []*VPA, actions []Action) {
	if s.room == nil || len(s.moving) == 0 || len(actions) == 0 {
		return
	}
	needed := make(map[string]*Action, len(actions))
	for i := range actions {
		needed[actions[i].UID] = &actions[i]
	}
	for _, v := range order {
		for i := range v.Pods {
			if a := needed[v.Pods[i].UID]; a != nil {
				s.room.Reserve(v.Pods[i].Need(), a.Evict)
			}
		}
	}
}

// join adds the shares to a plan of recommendations. Both parts of a pod form one action, except if
// the recommendation restarts or evicts: then the share stays separate in case it is refused.
func (s *sharePlan) join(r *Result) {
	r.State.Shared, r.Problems = s.states, append(r.Problems, s.problems...)
	if len(s.moving) == 0 {
		return
	}
	slices.SortStableFunc(s.actions, func(a, b Action) int {
		switch {
		case a.Stage != b.Stage || a.Shrinks == b.Shrinks:
			return cmp.Compare(a.Stage, b.Stage)
		case a.Shrinks:
			return -1
		}
		return 1
	})
	shares := make(map[string]*Action, len(s.actions))
	for i := range s.actions {
		shares[s.actions[i].UID] = &s.actions[i]
	}
	joined := map[string]bool{}
	for i := range r.Actions {
		a := &r.Actions[i]
		if share := shares[a.UID]; share != nil && !a.Evict && !a.Restarts {
			a.Share, a.Stage, joined[a.UID] = share, min(share.Stage, StageRecommendation), true
		}
		if !a.Evict {
			a.Skip = s.skipped[a.UID]
		}
	}
	r.Skipped = slices.DeleteFunc(r.Skipped, func(skip Skip) bool {
		share := shares[skip.UID]
		if share != nil && !nearTarget(skip.Reason) {
			share.Skip = skip.Reason
		}
		return share != nil
	})
	for i := range r.Skipped {
		if skip := &r.Skipped[i]; nearTarget(skip.Reason) {
			skip.Reason = cmp.Or(s.skipped[skip.UID], skip.Reason)
		}
	}
	for _, a := range s.actions {
		if !joined[a.UID] {
			r.Actions = append(r.Actions, a)
		}
	}
	inStages(r.Actions)
}

// nearTarget reports whether a reason means that a pod has the recommended resources, or nearly.
func nearTarget(r reason.Reason) bool {
	switch r {
	case reason.Unchanged, reason.NoRecommendation, reason.SmallChange, reason.TooYoung, reason.HasShare:
		return true
	}
	return false
}
