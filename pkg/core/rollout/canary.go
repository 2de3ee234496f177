package rollout

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// Workload is what Hold looks at.
type Workload struct {
	// Stopped is why fleet lets no running pod of it be changed; empty: Mode counts.
	Stopped  reason.Reason
	Mode     fleet.Mode
	Ordinals bool // a StatefulSet, whose pods are changed from the highest ordinal on
	Rolling  bool // it is being rolled out: RollingOut
	// ShortHistory: the recommendation rests on less usage than the policy requires.
	ShortHistory bool
	// Tripped: the fuse of the policy holds the workload, so no pod is changed.
	Tripped bool
	// StartBlocked: the policy starts no further workload now. One that has started goes on.
	StartBlocked bool

	Target []policy.Container // what is recommended, as requests, without any Floor
	Pods   []Pod
}

// Pod is one pod of a workload.
type Pod struct {
	UID, Name   string
	Running     bool // its phase
	Terminating bool
	Ready       bool
	Resizing    bool // the node is at a resize, or its state is not known
	Deferred    bool // its node has no room for the resize that was asked for
	Infeasible  bool // its node can never do that resize
	// Observed is when the change was sent that is noted on it, Change.At; zero: none is.
	Observed time.Time

	Due     bool                  // it is to be changed, if nothing of this package holds it
	LeftOut reason.Reason         // RevertBackoff or ManagedByHPA, where a part of the change is left out
	Grows   [resources.Kinds]bool // what of its requests and limits would grow
	Wants   resources.List        // what it would take of its node, init containers included
	Node    Node
	// Passed is when it was last free to change and package disruption left it alone: then
	// others go first. Zero: never.
	Passed time.Time
}

// Eligible reports whether the pod could be changed at all: it runs, is not going away, and
// no resize of it is under way. One that its node can never do is no obstacle to another.
func (p *Pod) Eligible() bool { return p.Running && !p.Terminating && !p.Resizing && !p.Deferred }

// ineligible says why the pod cannot be changed.
func (p *Pod) ineligible() reason.Reason {
	switch {
	case !p.Running || p.Terminating:
		return reason.NotRunning
	case p.Deferred:
		return reason.Deferred
	}
	return reason.WaitingForNode
}

// unjudged reports whether a change of the pod was carried out and is not judged yet. One
// that is deferred did nothing so far.
func (p *Pod) unjudged() bool { return p.observed() && !p.Deferred && !p.Terminating }

func (p *Pod) observed() bool { return !p.Observed.IsZero() }

// before orders pods as a rollout goes over them: by name, those of a StatefulSet from the
// highest ordinal on.
func (w *Workload) before(a, b *Pod) int {
	if w.Ordinals {
		if order := cmp.Compare(ordinal(b.Name), ordinal(a.Name)); order != 0 {
			return order
		}
	}
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// ordinal is the number at the end of the name of a pod; -1 if there is none.
func ordinal(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

// present returns the pod with a UID, nil if it is gone or going.
func (w *Workload) present(uid string) *Pod {
	for i := range w.Pods {
		if p := &w.Pods[i]; p.UID == uid && !p.Terminating {
			return p
		}
	}
	return nil
}

// maxMembers bounds the members of a canary, because a record lists them.
const maxMembers = 300

// choose selects the members of the canary once: the percentage of the eligible pods, rounded down,
// at least 1 and at most maxMembers. Pods with a planned change come first. Later it only replaces
// members that are gone, so sized, pending and new pods do not make the canary larger. It shrinks
// with the workload.
func (s *State) choose(w *Workload, percentage int) {
	var eligible []*Pod
	live := 0
	for i := range w.Pods {
		if p := &w.Pods[i]; p.Eligible() {
			eligible = append(eligible, p)
		}
		if !w.Pods[i].Terminating {
			live++
		}
	}
	wanted := max(1, percentage*len(eligible)/100)
	if len(s.Members) > 0 {
		wanted = min(len(s.Members), max(1, percentage*live/100))
	}
	wanted = min(wanted, maxMembers)
	var members, gone []Member
	for _, m := range s.Members {
		if w.present(m.UID) != nil {
			members = append(members, m)
		} else {
			gone = append(gone, m)
		}
	}
	slices.SortFunc(eligible, func(a, b *Pod) int { return cmp.Or(dueFirst(a, b), w.before(a, b)) })
	for _, p := range eligible {
		if len(members) < wanted && !slices.ContainsFunc(members, func(m Member) bool { return m.UID == p.UID }) {
			members = append(members, Member{UID: p.UID})
		}
	}
	s.Members = append(members, gone[:max(0, len(s.Members)-len(members))]...)
}

func dueFirst(a, b *Pod) int {
	switch {
	case a.Due == b.Due:
		return 0
	case a.Due:
		return -1
	}
	return 1
}

// selects reports whether the mode and its phase let a pod be changed at all.
func (s *State) selects(p *Pod) bool {
	return s.Phase != PhaseCanary || slices.ContainsFunc(s.Members, func(m Member) bool { return m.UID == p.UID })
}

// Obstacle is why a canary is not promoted, in one word.
type Obstacle string

// The obstacles.
const (
	RoundOpen           Obstacle = "RoundOpen"           // members are still changed or observed
	NotObserved         Obstacle = "NotObserved"         // no change of a member ended in Success yet
	MemberNotSuccessful Obstacle = "MemberNotSuccessful" // a change of a member ended otherwise, or is still to come
	PeriodNotOver       Obstacle = "PeriodNotOver"
	MembersBlocked      Obstacle = "MembersBlocked" // their nodes do not grant the change
	AutoPromoteOff      Obstacle = "AutoPromoteOff" // a person is to decide
)

// obstacle says why the canary is not promoted now; empty: nothing is in the way.
func (h *hold) obstacle() Obstacle {
	done, missing := false, false
	for _, m := range h.Members {
		p := h.w.present(m.UID)
		if p == nil {
			continue
		}
		done = done || m.Outcome == Success
		// One that has what it would get since before the canary is no obstacle.
		missing = missing || p.observed() || m.Outcome != Success && (m.Outcome != "" || p.Due)
	}
	switch {
	case h.blocked() != "":
		return MembersBlocked
	case h.round() != nil:
		return RoundOpen
	case missing:
		return MemberNotSuccessful
	case !done || h.CanarySince.IsZero():
		return NotObserved
	case h.now.Before(h.CanarySince.Add(h.set.CanaryPeriod)):
		return PeriodNotOver
	case !h.set.AutoPromote:
		return AutoPromoteOff
	}
	return ""
}

// differs reports whether a target is another one than before: what is recommended for a
// container went up or down by a tenth.
func differs(before, target []policy.Container) bool {
	for _, b := range before {
		i := slices.IndexFunc(target, func(c policy.Container) bool { return c.Name == b.Name })
		for k := range resources.Kind(resources.Kinds) {
			was, had := b.Requests.Get(k)
			if i < 0 || !had {
				continue
			}
			is, has := target[i].Requests.Get(k)
			if has && float64(max(is-was, was-is)) >= moved*float64(was) && is != was {
				return true
			}
		}
	}
	return false
}
