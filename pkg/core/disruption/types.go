package disruption

import (
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// Mode is what a VPA allows to be done with running pods.
type Mode uint8

// The modes. Off and Initial leave running pods alone.
const (
	Off Mode = iota
	Initial
	Recreate          // evict
	InPlaceOrRecreate // resize, or else evict
	InPlace           // resize, never evict
)

// Resizes reports whether running pods may be resized.
func (m Mode) Resizes() bool { return m == InPlaceOrRecreate || m == InPlace }

// VPA is one VerticalPodAutoscaler with the pods it controls.
type VPA struct {
	Namespace, Name string
	Mode            Mode
	Ungated         bool          // a SizingPolicy asks for mode InPlace, which needs no Config.InPlaceMode
	Outdated        bool          // what is recommended may be for another target than the VPA has now
	Held            reason.Reason // why no pod gets what is recommended, although shares may still move; empty: they do
	MinReplicas     int           // live pods that an owner must have; 0: Config.MinReplicas
	QuickOOM        time.Duration // 0: Config.QuickOOM
	Requirements    []Requirement // all must hold for one container of a pod
	Groups          []Group       // the owners of the pods
	Pods            []Pod
}

// Requirement is a direction in which at least one of the named kinds must
// change. It restricts only evictions and restarts. A requirement that names no kind is never met.
type Requirement struct {
	Kinds  [resources.Kinds]bool
	Higher bool // the target must be above the request, else below
}

// Unknown is the number of replicas of an owner that does not state it. The live pods count instead.
const Unknown = -1

// Group is the direct owner of pods, for example a ReplicaSet.
type Group struct {
	Replicas int    // wanted; Unknown, or 0 if it wants none or was not found
	Rolling  bool   // the workload is being rolled out
	Key      string // names it in State; empty: nothing is remembered of it
}

// Pod is one live pod. A process keeps as many of them as there are pods, so fields of one
// size stand together, and what few pods have is behind a pointer.
type Pod struct {
	Namespace, Name, UID string
	Group                int       // index into VPA.Groups; out of range: no known owner
	Created              time.Time // by the clock of the API server
	Started              time.Time // zero: not known
	ResizeSince          time.Time // when the pod entered the state Resize, zero: not known
	Resize               ResizeState
	Pending              bool // phase Pending; every other pod counts as running
	Ready                bool
	PodLevel             bool          // has sizes of its own, which bound those of its containers
	Boosted              bool          // has extra CPU while it starts, which is taken back apart from plans
	Bound                bool          // it can run nowhere else
	Sized                bool          // a VPA has given it its sizes, so its template may ask for less
	Static               bool          // its node has the static CPU manager policy
	MemoryOnly           bool          // though held, it may be given memory after an out-of-memory kill
	Restarts             int32         // how often its ordinary containers were restarted, in all
	Noted                *Noted        // what earlier plans wrote on it; nil: nothing
	Held                 reason.Reason // why a rollout under a SizingPolicy holds it; empty: it does not
	Protected            reason.Reason // why it must not be evicted, even if its VPA allows it; empty: not protected

	Budgets    []string           // names of the PodDisruptionBudgets that count it
	Node       string             // where it runs
	Footprint  resources.List     // what it takes of its node for all that runs beside each other
	Starting   resources.List     // what it takes at least, for its init containers
	Traits     PodTraits          // which quotas count it
	Fixed      []policy.Container // containers that are never sized, such as init containers
	Containers []Container
	Share      *Share // what sharing decides about it; nil: nothing
}

// Noted is what plans wrote on a pod for those after them.
type Noted struct {
	Backoff Backoff // in Result.Backoffs
	Restart Restart // the last resize that was to restart it while it was ready
}

// noted returns what is written on the pod.
func (p *Pod) noted() Noted {
	if p.Noted == nil {
		return Noted{}
	}
	return *p.Noted
}

// ResizeState is what the node says about a resize that is under way.
type ResizeState uint8

// The states. All but NotResizing mean that what runs is not what was asked.
const (
	NotResizing      ResizeState = iota
	ResizeDeferred               // possible, but the node has no room now
	ResizeInfeasible             // never possible on this node
	ResizeInProgress             // the node is at it
	ResizeError                  // the node tried and failed
	ResizeUnclear                // a state that this version does not know
)

// Container is one ordinary container of a pod.
type Container struct {
	Observed bool                   // the webhook saw it when the pod was created
	Off      bool                   // its policy leaves it alone
	Actual   policy.Container       // the resources that it runs with
	Spec     policy.Container       // the resources in its spec, which differ from Actual during a resize
	Target   policy.ContainerTarget // the resources to write
	Restarts [resources.Kinds]bool  // changing this kind restarts it
	OOM      OOM                    // its last termination, if it was out of memory
}

// OOM is the time from start to end of a container that ran out of memory. The
// zero value means that the last termination was something else.
type OOM struct{ Started, Ended time.Time }

// GroupOf returns the owner of a pod; the zero Group if it is not known.
func (v *VPA) GroupOf(p *Pod) Group {
	if p.Group < 0 || p.Group >= len(v.Groups) {
		return Group{}
	}
	return v.Groups[p.Group]
}

// View is the part of the cluster that a plan is made for.
type View struct {
	VPAs []VPA
	// Others are pods of no VPA that are being restarted, or were: those that share a
	// PodDisruptionBudget with them wait.
	Others []Pod
	Room   *Capacity // what nodes and quotas have left; nil: not asked
}

// Config holds the settings of a plan.
type Config struct {
	MinReplicas         int           // live pods that an owner must have before any is disrupted
	Tolerance           float64       // part of the wanted replicas that may be away, rounded down
	Threshold           float64       // least relative change of a pod that is within its bounds
	Lifetime            time.Duration // least age of a pod that is within its bounds
	QuickOOM            time.Duration // out of memory within this time after the start: age does not matter
	FreeResizes         bool          // resizes that restart nothing need no budget and no minimum
	InPlaceMode         bool          // mode InPlace is allowed
	StabilizationWindow time.Duration // how long a change lasts at least before it is undone; doubled each time
	Autoscaled          bool          // nodes are added for pods that find none
	CapToRoom           bool          // a pod that finds no room for all of a resize gets what there is
	IgnoreCapacity      bool          // what is recommended needs no room; shares do

	onlyFitting bool // a resize for which its node has no room now is not asked for, and waits in no kubelet
}

// DefaultConfig returns the settings of an updater without flags.
func DefaultConfig() Config {
	return Config{MinReplicas: 2, Tolerance: 0.5, Threshold: 0.1, Lifetime: 12 * time.Hour, QuickOOM: 10 * time.Minute, StabilizationWindow: 10 * time.Minute}
}

// How long a resize may stay under way before mode InPlaceOrRecreate evicts.
const (
	DeferredTimeout   = 5 * time.Minute
	InProgressTimeout = time.Hour
)

// Cause is why a pod is changed.
type Cause string

// The causes.
const (
	Changed     Cause = "Changed"     // it has run for long enough and would change enough
	OutOfBounds Cause = "OutOfBounds" // a request is outside the recommended bounds
	OutOfMemory Cause = "OutOfMemory" // a container ran out of memory soon after its start
	ResizeStuck Cause = "ResizeStuck" // a resize did not come about, so the pod is evicted
	Retry       Cause = "Retry"       // a resize did not come about, so another target is asked for
	BoostOver   Cause = "BoostOver"   // its startup boost is over
	BoostMissed Cause = "BoostMissed" // it was created before the webhook knew its VPA, so it has no startup boost

	// Of pods that share what their node has left.
	Shared        Cause = "Shared"        // its share has changed
	ShareEnded    Cause = "ShareEnded"    // it shares no more, and gets its peak
	ShareReverted Cause = "ShareReverted" // its share did harm, so it gets its peak
	NodeCrowded   Cause = "NodeCrowded"   // those that share its node need more than there is
	MemoryRefused Cause = "MemoryRefused" // it ran out of memory that it shares, and its node refuses it more
)

// Shares reports whether the change is one of sharing. It is part of no rollout.
func (c Cause) Shares() bool {
	switch c {
	case Shared, ShareEnded, ShareReverted, NodeCrowded, MemoryRefused:
		return true
	}
	return false
}

// Recommended reports whether the container has a recommendation.
func (c *Container) Recommended() bool { return !c.Target.Bounds.Target.Empty() }

// Changes reports whether the fitted values of kind k differ from others.
func (c *Container) Changes(k resources.Kind, from policy.Container) bool {
	return differs(c.Target.Requests, from.Requests, k) || differs(c.Target.Limits, from.Limits, k)
}

// differs reports whether wanted names an amount of kind k that has lacks.
func differs(wanted, has resources.List, k resources.Kind) bool {
	a, ok := wanted.Get(k)
	if !ok {
		return false
	}
	b, ok := has.Get(k)
	return !ok || a != b
}

// Any, and what asks it, looks only at containers that the webhook may have seen: those that
// another webhook added later would not be sized by ours either.

// Changed reports whether the pod would get something else than it runs with.
func (p *Pod) Changed() bool {
	return p.Any(func(c *Container, k resources.Kind) bool { return c.Changes(k, c.Actual) })
}

// Asks reports whether a resize would write something new into the spec.
func (p *Pod) Asks() bool {
	return p.Any(func(c *Container, k resources.Kind) bool { return c.Changes(k, c.Spec) })
}

// WouldRestart reports whether a resize would restart a container.
func (p *Pod) WouldRestart() bool {
	return p.Any(func(c *Container, k resources.Kind) bool {
		return c.Restarts[k] && (c.Changes(k, c.Actual) || c.Changes(k, c.Spec))
	})
}

// RestartsFor reports whether giving f to the container restarts it.
func (c *Container) RestartsFor(f policy.ContainerTarget) bool {
	for k := range resources.Kind(resources.Kinds) {
		if c.Restarts[k] && (differs(f.Requests, c.Spec.Requests, k) || differs(f.Limits, c.Spec.Limits, k)) {
			return true
		}
	}
	return false
}

// Any reports whether something holds for one of the kinds of one of the containers.
func (p *Pod) Any(holds func(*Container, resources.Kind) bool) bool {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Observed && (holds(c, resources.CPU) || holds(c, resources.Memory)) {
			return true
		}
	}
	return false
}

// Unanswered reports whether a resize was accepted and the node says nothing.
func (p *Pod) Unanswered() bool { return p.Resize == NotResizing && p.Changed() && !p.Asks() }

// Change is what a change of the pod would change, in requests and in memory limits that do not follow them.
func (p *Pod) Change() Change {
	c := Change{Before: Sizes{}, After: Sizes{}}
	for i := range p.Containers {
		one := &p.Containers[i]
		if !one.Observed {
			continue
		}
		c.Before[one.Spec.Name], c.After[one.Spec.Name] = one.Spec.Requests, one.After().Requests
		if limit, some := separateLimit(one.Target); some {
			name := one.Spec.Name + ofLimit
			c.Before[name] = resources.List{}.With(resources.Memory, one.Spec.Limits.Value(resources.Memory))
			c.After[name] = resources.List{}.With(resources.Memory, limit)
		}
	}
	return c
}

// separateLimit returns the memory limit that is to be written, if it does not follow its request.
func separateLimit(f policy.ContainerTarget) (limit resources.Amount, some bool) {
	if f.MemoryLimit == (policy.LimitSpan{}) {
		return 0, false
	}
	return f.Limits.Get(resources.Memory)
}

// Targets lists what the containers of the pod would get, those that the webhook
// did not see and those left alone excepted.
func (p *Pod) Targets() []policy.ContainerTarget {
	var all []policy.ContainerTarget
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Observed && (!c.Target.Requests.Empty() || !c.Target.Limits.Empty()) {
			all = append(all, c.Target)
		}
	}
	return all
}

// Part returns a pod that changes by a part of what it should, in millionths for each kind.
func (p *Pod) Part(of [resources.Kinds]resources.Amount) *Pod {
	part := *p
	part.Containers = slices.Clone(p.Containers)
	for i := range part.Containers {
		c := &part.Containers[i]
		for k, millionths := range of {
			if millionths < policy.Whole {
				c.Target = policy.Partial(resources.Kind(k), millionths, c.Spec, c.Target)
			}
		}
	}
	return &part
}

// KeepingCPU returns a pod that changes as it should, but keeps the CPU that it runs with,
// also where other CPU was asked for before, and refused.
func (p *Pod) KeepingCPU() *Pod {
	kept := *p
	kept.Containers = slices.Clone(p.Containers)
	for i := range kept.Containers {
		c := &kept.Containers[i]
		if c.Target.Requests.Has(resources.CPU) {
			c.Target.Requests = c.Target.Requests.With(resources.CPU, c.Actual.Requests.Value(resources.CPU))
		}
		if c.Target.Limits.Has(resources.CPU) {
			c.Target.Limits = c.Target.Limits.With(resources.CPU, c.Actual.Limits.Value(resources.CPU))
		}
	}
	return &kept
}

// TakesMemory reports whether a resize takes memory from a container. A kubelet refuses that while the memory is in
// use, or while it does not know the usage yet, and tries again by itself: no reason to evict a pod that works, which
// would come back with less than it uses.
func (p *Pod) TakesMemory() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		asked, limited := c.Spec.Limits.Get(resources.Memory)
		return limited && asked < c.Actual.Limits.Value(resources.Memory)
	})
}
