// Package rollout answers which pods of one workload may be changed now under a policy, and whether a change did harm.
//
// What is remembered of a workload is its State. Four functions change it, each returns the next one: State.Began notes
// that a node began with a change, Hold goes over the pods before a plan is made and says of each why it is held,
// State.Changed notes that a pod was changed, and State.End what came of a change. Between the last two a pod is under
// observation: a Change is noted on it, and Judge compares that with Evidence until there is a Verdict.
// Change.RevertSizes is how a change that did harm is taken back, and State.Floor what is not tried again for a while.
//
//	Hold --free pods--> plan, resize --> State.Changed
//	  ^                                       |
//	  +---- State.End <--Verdict-- Judge <----+  (observation period)
//
// A round is one target for one workload. It goes on pass by pass; when it has ended, a
// cooldown begins that doubles with each round that was reverted.
//
// Nothing here reads objects, waits, or changes a pod. Who is responsible, and in which
// mode, is up to package fleet; what else speaks against a change, to package disruption.
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

// Phase is how far a rollout in mode Canary is. Other modes have no phase.
type Phase string

// The phases.
const (
	PhaseCanary      Phase = "Canary"      // members of the canary only
	PhaseFullRollout Phase = "FullRollout" // all pods
	PhaseHalted      Phase = "Halted"      // none until the target or the policy changes
)

// Outcome is what came of a change or of a round. Each ends once; empty: it goes on.
type Outcome string

// The outcomes.
const (
	Success        Outcome = "Success"
	Reverted       Outcome = "Reverted"
	RevertDeferred Outcome = "Deferred"   // it did harm, and the node has not carried the revert out in time
	Failed         Outcome = "Failed"     // the change could not be brought to the pod
	Evicted        Outcome = "Evicted"    // it comes with a new pod
	Superseded     Outcome = "Superseded" // somebody else changed the pod meanwhile, or it is gone
	Unobserved     Outcome = "Unobserved" // nobody looked in time
)

// State is what is remembered of one workload; the zero value remembers nothing. It is
// never changed in place: who has one may keep it.
type State struct {
	Mode          fleet.Mode // in which the workload was last looked at
	Phase         Phase
	Hash          string             // of the fields of the policy on which phase and reverts rest
	Members       []Member           // of the canary
	Started       time.Time          // the first change of a pod under Hash; zero: none yet
	CanarySince   time.Time          // the begin of its first round; zero: it has none, or was reverted since
	HaltedTarget  []policy.Container // what was recommended when it was halted
	CooldownUntil time.Time
	Kept          []policy.Container // the last sizes that did well, sorted by name
	Reverted      []RevertedSizes    // the sizes that did harm, sorted by name
	Rounds        []Round            // newest first, at most 20

	Degraded        Condition // HighRevertRate
	ResizeBlocked   Condition // PodsDeferred, PodsInfeasible, PodsDeferredAndInfeasible
	ScheduleBlocked Condition // OutsideWindow
	EvidenceMissing Condition // NoPrometheus
	StartPending    Condition // PolicyChanged
}

// Member is a pod of a canary.
type Member struct {
	UID     string
	Outcome Outcome // of its last change in this canary; empty: it was not changed yet, or is not judged
}

// RevertedSizes are sizes of one container that did harm and were taken back. Only what was lowered is there.
type RevertedSizes struct {
	policy.Container
	At time.Time
}

// Round is one target of a workload and what came of it.
type Round struct {
	Time     time.Time // of the first change; before that, when a change became possible
	Last     time.Time // of the last change; zero: there was none
	Pods     int       // that were changed
	From, To []policy.Container
	Outcome  Outcome
	Reason   Harm // of Reverted and Failed
	// SoFar is what the round would end as if no other change of it ended.
	SoFar Outcome
	Ended time.Time // when the round ended or was reverted; zero: it has not, or the time is unknown
}

// NoPrometheus is why throttling and pressure are not looked at.
const NoPrometheus = "NoPrometheus"

// PolicyChanged is why a workload with rounds has not started: they are of another hash.
const PolicyChanged = "PolicyChanged"

// Condition is a state that lasts. The zero value says that it does not hold.
type Condition struct {
	Reason string
	Since  time.Time
}

// set notes that a condition holds for a reason, or with an empty one that it does not.
func (c *Condition) set(reason string, now time.Time) {
	switch {
	case reason == "":
		*c = Condition{}
	case reason != c.Reason:
		*c = Condition{Reason: reason, Since: now}
	}
}

// Settings are the fields of a policy that count here, defaults filled in.
type Settings struct {
	// Hash is one of the fields recipe, resourcePolicy, containers, mode, canary and method.
	// Another one begins the rollout anew. Empty: not known, and nothing begins anew.
	Hash          string
	Percentage    int           // of the pods that are members of a canary, 1 to 100
	AutoPromote   bool          // a canary that did well becomes a full rollout
	CanaryPeriod  time.Duration // least time from the begin of a canary's round until then
	Recreate      bool          // pods that cannot be resized may be evicted
	Cooldown      time.Duration // after a round; 0: none
	MaxConcurrent int           // pods that are changed and not judged yet; 0: no limit
	StartRate     int           // workloads that begin within the first hour; 0: no limit, see PolicyRounds.Starts
	Schedule      *Schedule     // nil: always
	// Unmeasured says that throttling and pressure count, and nobody can be asked for them.
	Unmeasured bool
}

// The defaults of a policy in a mode that changes pods.
const (
	DefaultCooldown      = time.Hour
	DefaultMinHistory    = time.Hour // as sharing.MinAge
	DefaultMaxConcurrent = 1
	DefaultStartRate     = 10
)

// clone returns a state whose lists can be changed.
func (s State) clone() State {
	s.Members, s.Rounds = slices.Clone(s.Members), slices.Clone(s.Rounds)
	s.Kept, s.Reverted = slices.Clone(s.Kept), slices.Clone(s.Reverted)
	return s
}

// round returns the round that goes on, or nil.
func (s *State) round() *Round {
	if len(s.Rounds) > 0 && s.Rounds[0].Outcome == "" {
		return &s.Rounds[0]
	}
	return nil
}

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
	Unsent   bool // that change was not made, because the process ended before

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

// before orders pods as a rollout goes over them: by name, those of a StatefulSet from the highest ordinal on.
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

// choose selects the members of the canary once: the percentage of the eligible pods, rounded down, at least 1 and at
// most maxMembers. Pods with a planned change come first. Later it only replaces members that are gone, so sized,
// pending and new pods do not make the canary larger. It shrinks with the workload.
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

// Node is what the node of a pod says of itself. The zero value is one that cannot be read.
type Node struct {
	Known             bool
	Size              resources.List // what pods may have in all; a kind that is absent is not looked at
	MemoryPressure    bool
	DiskOrPIDPressure bool
}

// holds says why the node lets a pod not grow; empty: it does, or nothing grows.
func (n Node) holds(grows [resources.Kinds]bool) reason.Reason {
	switch {
	case !grows[resources.CPU] && !grows[resources.Memory]:
		return ""
	case !n.Known:
		return reason.NodeUnknown
	case n.DiskOrPIDPressure, n.MemoryPressure && grows[resources.Memory]:
		return reason.NodePressure
	}
	return ""
}

// holdsMemory reports whether the node lets memory not grow.
func (n Node) holdsMemory() bool { return n.holds([resources.Kinds]bool{resources.Memory: true}) != "" }

// MemoryMargin is how much of the memory that a container uses its limit must be above
// that, in percent, when it is lowered.
const MemoryMargin = 10

// LiftMemory returns what a container gets whose memory limit is to fall: a limit not below what it uses and a margin
// in percent of that, at least a byte, and not above what it has. A request that equals its limit goes on doing so.
func LiftMemory(has policy.Container, gets policy.ContainerTarget, used resources.Amount, margin int) policy.ContainerTarget {
	before := has.Limits.Value(resources.Memory)
	limit, ok := gets.Limits.Get(resources.Memory)
	if !ok || before <= 0 || limit >= before {
		return gets
	}
	least, _ := used.ProportionUp(resources.Amount(100+margin), 100)
	least = min(max(least, used.Add(1)), before)
	if limit >= least {
		return gets
	}
	gets.Limits = gets.Limits.With(resources.Memory, least)
	if request, ok := has.Requests.Get(resources.Memory); ok && request == before && gets.Requests.Has(resources.Memory) {
		gets.Requests = gets.Requests.With(resources.Memory, least)
	}
	return gets
}
