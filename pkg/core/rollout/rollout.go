// Package rollout decides which pods of a workload may change under a SizingPolicy, and detects
// harmful changes.
//
//	Hold --free pods--> plan, resize --> State.RecordChange
//	  ^                                              |
//	  +-- State.EndObservation <--Verdict-- Judge <--+  (observation period)
//
// A round applies one target to one workload over several loop iterations. Each Change is also
// stored on its pod, so that any process can judge and revert it. A cooldown follows each round and
// doubles with each reverted round. State.Floor keeps reverted resources from being applied again
// for a while.
//
// The package does no I/O. Package fleet selects the policy and the mode. Package disruption checks
// further obstacles.
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

// Phase is the progress of a rollout in mode Canary. Other modes have no phase.
type Phase string

// Phases of a canary rollout.
const (
	PhaseCanary      Phase = "Canary"      // only members of the canary change
	PhaseFullRollout Phase = "FullRollout" // all pods change
	PhaseHalted      Phase = "Halted"      // no pod changes until the target or the policy does
)

// Outcome is the final result of a change or of a round. Empty means in progress.
type Outcome string

// Outcomes of changes and rounds.
const (
	Success        Outcome = "Success"
	Reverted       Outcome = "Reverted"
	RevertDeferred Outcome = "Deferred"   // harmful, and the node has not completed the revert in time
	Failed         Outcome = "Failed"     // the resize of the pod failed
	Evicted        Outcome = "Evicted"    // the replacement pod gets the change
	Superseded     Outcome = "Superseded" // another client changed the pod, or the pod is gone
	Unobserved     Outcome = "Unobserved" // the evidence expired before a verdict
)

// State is the stored rollout of one workload. Zero: no history. Exported methods return a copy.
type State struct {
	Mode              fleet.Mode // mode at the last evaluation
	Phase             Phase
	Hash              string // of the policy fields that phase and reverts depend on
	Members           []Member
	Started           time.Time          // first change of a pod under Hash, or zero
	CanarySince       time.Time          // start of its first round, zero without one or after a revert
	HaltedTarget      []policy.Container // recommendation when the rollout halted
	CooldownUntil     time.Time
	ProvenResources   []policy.Container  // last successful resources, sorted by name
	RevertedResources []RevertedResources // harmful resources, sorted by name
	Rounds            []Round             // newest first, at most 20

	Degraded        Condition // HighRevertRate
	ResizeBlocked   Condition // PodsDeferred, PodsInfeasible or PodsDeferredAndInfeasible
	ScheduleBlocked Condition // OutsideWindow
	EvidenceMissing Condition // NoPrometheus
	StartPending    Condition // PolicyChanged
}

// Member is a pod of a canary.
type Member struct {
	UID     string
	Outcome Outcome // of its last change in this canary, empty without a verdict
}

// RevertedResources are the lowered resources of one container that were reverted after harm.
type RevertedResources struct {
	policy.Container
	At time.Time
}

// Round is the application of one target to a workload, with its result.
type Round struct {
	Time     time.Time // of the first change, before it the time of its opening
	Last     time.Time // of the last change, or zero
	Pods     int       // number of changed pods
	From, To []policy.Container
	Outcome  Outcome
	Reason   Harm // cause of Reverted and Failed
	// SoFar is the worst outcome of the changes that ended. It becomes Outcome at the end.
	SoFar Outcome
	Ended time.Time // end or revert of the round, zero if in progress or unknown
}

// NoPrometheus is the reason for rollouts without throttling and CPU pressure metrics.
const NoPrometheus = "NoPrometheus"

// PolicyChanged is the reason for a workload that has rounds only under an older policy hash.
const PolicyChanged = "PolicyChanged"

// Condition is a lasting state. The zero value is a condition that does not hold.
type Condition struct {
	Reason string
	Since  time.Time
}

func (c *Condition) set(reason string, now time.Time) {
	switch {
	case reason == "":
		*c = Condition{}
	case reason != c.Reason:
		*c = Condition{Reason: reason, Since: now}
	}
}

// Settings are the policy fields that control a rollout, with defaults applied.
type Settings struct {
	// Hash covers the fields recipe, resourcePolicy, containers, mode, canary and method. A new
	// hash restarts the rollout. Empty means unknown and restarts nothing.
	Hash          string
	Percentage    int           // of pods in the canary, 1 to 100
	AutoPromote   bool          // promotes a successful canary to a full rollout
	CanaryPeriod  time.Duration // minimum time from the first canary round to promotion
	Recreate      bool          // evicts pods that cannot be resized in place
	Cooldown      time.Duration // after a round, 0 disables it
	MaxConcurrent int           // changed pods without a verdict, 0 is no limit
	StartRate     int           // workloads that start in the first hour, 0 is no limit
	Schedule      *Schedule     // nil is always open
	// MetricsMissing means that throttling and pressure are configured without a metrics source.
	MetricsMissing bool
}

// Default settings of a policy in a mode that changes pods.
const (
	DefaultCooldown      = time.Hour
	DefaultMinHistory    = time.Hour // equals sharing.MinAge
	DefaultMaxConcurrent = 1
	DefaultStartRate     = 10
)

func (s State) clone() State {
	s.Members, s.Rounds = slices.Clone(s.Members), slices.Clone(s.Rounds)
	s.ProvenResources, s.RevertedResources = slices.Clone(s.ProvenResources), slices.Clone(s.RevertedResources)
	return s
}

func (s *State) round() *Round {
	if len(s.Rounds) > 0 && s.Rounds[0].Outcome == "" {
		return &s.Rounds[0]
	}
	return nil
}

// Workload is the input of Hold.
type Workload struct {
	// StopReason forbids any change of a running pod. Empty means Mode decides. The updater leaves it
	// empty, because it does not call Hold for such a workload.
	StopReason reason.Reason
	Mode       fleet.Mode
	Ordinals   bool // StatefulSet, changed from the highest ordinal down
	RollingOut bool // a template rollout is in progress, see RollingOut
	// ShortHistory reports less usage history than the policy requires.
	ShortHistory bool
	// FuseTripped reports that the fuse of the policy holds the workload.
	FuseTripped bool
	// StartBlocked holds the workload unless it has started.
	StartBlocked bool

	Target []policy.Container // recommended requests, without any Floor
	Pods   []Pod
}

// Pod is the state of one pod of the workload.
type Pod struct {
	UID, Name   string
	Running     bool // phase of the pod
	Terminating bool
	Ready       bool
	Resizing    bool // a resize is in progress or its state is unknown
	Deferred    bool // the node has no room for the requested resize
	Infeasible  bool // the node can never fit the requested resize
	// ObservedSince is Change.At of the change stored on the pod, or zero.
	ObservedSince time.Time
	Unsent        bool // the process ended before it sent the stored change

	Due           bool                  // the plan would change the pod if this package frees it
	OmittedReason reason.Reason         // RevertBackoff or ManagedByHPA, if part of the change is omitted
	Grows         [resources.Kinds]bool // kinds whose requests or limits grow
	TotalRequests resources.List        // on its node after the change, with init containers
	Node          Node
	// SkippedAt is when package disruption last skipped the free pod. Other pods go first then.
	SkippedAt time.Time
}

// Eligible reports whether the pod runs without a resize. An infeasible one does not count.
func (p *Pod) Eligible() bool { return p.Running && !p.Terminating && !p.Resizing && !p.Deferred }

func (p *Pod) ineligible() reason.Reason {
	switch {
	case !p.Running || p.Terminating:
		return reason.NotRunning
	case p.Deferred:
		return reason.Deferred
	}
	return reason.WaitingForNode
}

// isUnjudged excludes deferred resizes, which have had no effect.
func (p *Pod) isUnjudged() bool { return p.isObserved() && !p.Deferred && !p.Terminating }

func (p *Pod) isObserved() bool { return !p.ObservedSince.IsZero() }

func (w *Workload) compare(a, b *Pod) int {
	if w.Ordinals {
		if order := cmp.Compare(ordinal(b.Name), ordinal(a.Name)); order != 0 {
			return order
		}
	}
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func ordinal(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

func (w *Workload) livePod(uid string) *Pod {
	for i := range w.Pods {
		if p := &w.Pods[i]; p.UID == uid && !p.Terminating {
			return p
		}
	}
	return nil
}

// maxMembers limits the canary because the stored record lists its members.
const maxMembers = 300

// chooseMembers selects the members of the canary once: the percentage of the eligible pods,
// rounded down, from 1 to maxMembers, pods with a planned change first. Later calls replace members
// that are gone and shrink the canary with the workload, but never enlarge it.
func (s *State) chooseMembers(w *Workload, percentage int) {
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
	size := max(1, percentage*len(eligible)/100)
	if len(s.Members) > 0 {
		size = min(len(s.Members), max(1, percentage*live/100))
	}
	size = min(size, maxMembers)
	var members, gone []Member
	for _, m := range s.Members {
		if w.livePod(m.UID) != nil {
			members = append(members, m)
		} else {
			gone = append(gone, m)
		}
	}
	slices.SortFunc(eligible, func(a, b *Pod) int { return cmp.Or(compareDue(a, b), w.compare(a, b)) })
	for _, p := range eligible {
		if len(members) < size && !slices.ContainsFunc(members, func(m Member) bool { return m.UID == p.UID }) {
			members = append(members, Member{UID: p.UID})
		}
	}
	s.Members = append(members, gone[:max(0, len(s.Members)-len(members))]...)
}

func compareDue(a, b *Pod) int {
	switch {
	case a.Due == b.Due:
		return 0
	case a.Due:
		return -1
	}
	return 1
}

func (s *State) selects(p *Pod) bool {
	return s.Phase != PhaseCanary || slices.ContainsFunc(s.Members, func(m Member) bool { return m.UID == p.UID })
}

// Obstacle is the reason why a canary is not promoted.
type Obstacle string

// Obstacles to promotion.
const (
	RoundOpen           Obstacle = "RoundOpen"           // members are still being changed or observed
	NotObserved         Obstacle = "NotObserved"         // no change of a member has succeeded yet
	MemberNotSuccessful Obstacle = "MemberNotSuccessful" // a change of a member did not succeed, or is still pending
	PeriodNotOver       Obstacle = "PeriodNotOver"
	MembersBlocked      Obstacle = "MembersBlocked" // nodes defer or reject the change
	AutoPromoteOff      Obstacle = "AutoPromoteOff" // waits for an operator
)

func (h *hold) obstacle() Obstacle {
	done, missing := false, false
	for _, m := range h.Members {
		p := h.w.livePod(m.UID)
		if p == nil {
			continue
		}
		done = done || m.Outcome == Success
		// A member that had the target before the canary started is no obstacle.
		missing = missing || p.isObserved() || m.Outcome != Success && (m.Outcome != "" || p.Due)
	}
	switch {
	case h.blockedReason() != "":
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

// targetDiffers reports whether the recommended request of a container moved by 10% or more.
func targetDiffers(before, target []policy.Container) bool {
	for _, b := range before {
		i := slices.IndexFunc(target, func(c policy.Container) bool { return c.Name == b.Name })
		for k := range resources.Kind(resources.Kinds) {
			was, had := b.Requests.Get(k)
			if i < 0 || !had {
				continue
			}
			is, has := target[i].Requests.Get(k)
			if has && float64(max(is-was, was-is)) >= targetThreshold*float64(was) && is != was {
				return true
			}
		}
	}
	return false
}

// Node is the state of the pod's node. The zero value is an unreadable node.
type Node struct {
	Known             bool
	Size              resources.List // allocatable resources, an absent kind is not checked
	MemoryPressure    bool
	DiskOrPIDPressure bool
}

func (n Node) growthBlocked(grows [resources.Kinds]bool) reason.Reason {
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

func (n Node) memoryGrowthBlocked() bool {
	return n.growthBlocked([resources.Kinds]bool{resources.Memory: true}) != ""
}

// MemoryMarginPercent is the minimum margin of a lowered memory limit above the usage, in percent.
const MemoryMarginPercent = 10

// ClampMemoryLimit keeps a lowered memory limit above the usage, by a margin in percent and at
// least one byte, but not above the current limit. A request that equals the limit stays equal.
func ClampMemoryLimit(current policy.Container, target policy.ContainerTarget, used resources.Amount, margin int) policy.ContainerTarget {
	before := current.Limits.Value(resources.Memory)
	limit, ok := target.Limits.Get(resources.Memory)
	if !ok || before <= 0 || limit >= before {
		return target
	}
	minimum, _ := used.ProportionUp(resources.Amount(100+margin), 100)
	minimum = min(max(minimum, used.Add(1)), before)
	if limit >= minimum {
		return target
	}
	target.Limits = target.Limits.With(resources.Memory, minimum)
	if request, ok := current.Requests.Get(resources.Memory); ok && request == before && target.Requests.Has(resources.Memory) {
		target.Requests = target.Requests.With(resources.Memory, minimum)
	}
	return target
}
