// Package rollout answers which pods of one workload may be changed now under a policy, and
// whether a change did harm.
//
// What is remembered of a workload is its State. Three functions change it, each returns
// the next one: Hold goes over the pods before a plan is made and says of each why it is
// held, State.Changed notes that a pod was changed, and State.End what came of a change.
// Between the last two a pod is under observation: a Change is noted on it, and Judge
// compares that with Evidence until there is a Verdict. Change.RevertSizes is how a change
// that did harm is taken back, and State.Floor what is not tried again for a while.
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
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
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

// RevertedSizes are sizes of one container that did harm and were taken back. Only what
// was lowered is there.
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
