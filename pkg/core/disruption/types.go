package disruption

import (
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// Mode is the update mode of a VPA for running pods.
type Mode uint8

// The modes. Off and Initial never change running pods.
const (
	Off Mode = iota
	Initial
	Recreate
	InPlaceOrRecreate // resize, evict as a fallback
	InPlace           // resize, never evict
)

// Resizes reports whether running pods may be resized.
func (m Mode) Resizes() bool { return m == InPlaceOrRecreate || m == InPlace }

// VPA is one VerticalPodAutoscaler with the pods it controls.
type VPA struct {
	Namespace, Name string
	Mode            Mode
	Ungated         bool          // a SizingPolicy uses mode InPlace, which needs no Config.InPlaceMode
	Outdated        bool          // the recommendation may belong to an earlier target reference of the VPA
	Held            reason.Reason // why recommendations are not applied, shares still move; empty: applied
	MinReplicas     int           // minimum of live pods of an owner; 0: Config.MinReplicas
	QuickOOMTime    time.Duration // 0: Config.QuickOOM
	Requirements    []Requirement // one container of a pod must meet all of them
	Groups          []Group
	Pods            []Pod
}

// Requirement is a direction in which at least one of the Kinds must change. It restricts only
// evictions and restarts. A requirement without kinds is never met.
type Requirement struct {
	Kinds  [resources.Kinds]bool
	Higher bool // the target must be above the request, otherwise below
}

// Unknown is the number of replicas of an owner that does not state it: live pods count instead.
const Unknown = -1

// Group is the direct owner of pods, for example a ReplicaSet.
type Group struct {
	Replicas int    // desired; Unknown, or 0 if none are desired or the owner was not found
	Rolling  bool   // a rollout of the workload is in progress
	Key      string // key in State; empty: no state is kept
}

// Pod is one live pod. The updater holds every pod of the cluster in memory, so field order
// minimizes padding, and rare data is behind a pointer.
type Pod struct {
	Namespace, Name, UID string
	Group                int       // index into VPA.Groups; out of range: unknown owner
	Created              time.Time // API server clock
	Started              time.Time // zero: unknown
	ResizeSince          time.Time // when Resize last changed; zero: unknown
	Resize               ResizeState
	Pending              bool // phase Pending; all other pods count as running
	Ready                bool
	PodLevel             bool            // has pod-level resources, which bound its containers
	Boosted              bool            // has a startup boost, which is removed outside of plans
	NodeBound            bool            // can run on no other node
	SizedByVPA           bool            // a VPA set its resources, the template may request less
	StaticCPU            bool            // the node has the static CPU manager policy
	MemoryOnly           bool            // despite Held, may get memory after an out-of-memory kill
	Restarts             int32           // sum of the restart counts of its ordinary containers
	Persisted            *PersistedState // state that earlier plans stored on the pod; nil: none
	Held                 reason.Reason   // why the rollout of a SizingPolicy holds it; empty: not held
	Protected            reason.Reason   // why it must not be evicted, even if its VPA allows it; empty: not protected

	Budgets         []string // names of the PodDisruptionBudgets that select it
	Node            string
	Footprint       resources.List     // node capacity that its concurrently running containers reserve
	InitFootprint   resources.List     // minimum that its init containers reserve
	Traits          PodTraits          // select the quotas that count it
	FixedContainers []policy.Container // containers that are never sized, such as init containers
	Containers      []Container
	Share           *Share // its share of node headroom; nil: it does not share
}

// PersistedState is state that plans store on a pod for later plans.
type PersistedState struct {
	Backoff Backoff // from Result.Backoffs
	Restart Restart // the last resize that was to restart the pod while it was ready
}

func (p *Pod) persisted() PersistedState {
	if p.Persisted == nil {
		return PersistedState{}
	}
	return *p.Persisted
}

// ResizeState is the state of a resize in progress, as the kubelet reports it.
type ResizeState uint8

// The states. In all but NotResizing the actual resources differ from the spec.
const (
	NotResizing      ResizeState = iota
	ResizeDeferred               // feasible, but the node has no room now
	ResizeInfeasible             // never possible on this node
	ResizeInProgress             // the kubelet is applying it
	ResizeError                  // the kubelet tried and failed
	ResizeUnclear                // a state that this version does not support
)

// Container is one ordinary container of a pod.
type Container struct {
	Observed bool                   // the webhook processed it at pod creation
	Off      bool                   // its policy has mode Off
	Actual   policy.Container       // the resources that it runs with
	Spec     policy.Container       // the resources in its spec, which differ from Actual during a resize
	Target   policy.ContainerTarget // the resources to write
	Restarts [resources.Kinds]bool  // a resize of this kind restarts it
	OOM      OOM                    // its last termination, if it was an out-of-memory kill
}

// OOM is the run of a container until an out-of-memory kill; zero: it ended for another cause.
type OOM struct{ Started, Ended time.Time }

// GroupOf returns the owner of a pod, or the zero Group if it is unknown.
func (v *VPA) GroupOf(p *Pod) Group {
	if p.Group < 0 || p.Group >= len(v.Groups) {
		return Group{}
	}
	return v.Groups[p.Group]
}

// View is the part of the cluster that a plan covers.
type View struct {
	VPAs []VPA
	// Others are restarted pods without a VPA, for which pods with a common PodDisruptionBudget
	// wait.
	Others []Pod
	Room   *Capacity // free capacity of nodes and quotas; nil: not checked
}

// Config holds the settings of a plan.
type Config struct {
	MinReplicas         int           // minimum of live pods of an owner for any disruption
	Tolerance           float64       // fraction of the desired replicas that may be unavailable, rounded down
	Threshold           float64       // minimum relative change of a pod within its bounds
	Lifetime            time.Duration // minimum age of a pod within its bounds
	QuickOOMTime        time.Duration // an out-of-memory kill within this time after start overrides Lifetime
	FreeResizes         bool          // resizes without restart need neither budget nor minimum
	InPlaceMode         bool          // mode InPlace is allowed
	StabilizationWindow time.Duration // minimum time before a change is reversed, doubled with each reversal
	Autoscaled          bool          // nodes are added for unschedulable pods
	CapToRoom           bool          // a resize without enough room is reduced to the available room
	IgnoreCapacity      bool          // recommendations need no room; shares do

	onlyFitting bool // resizes that do not fit now are not requested, so none waits in a kubelet
}

// DefaultConfig returns the settings of an updater without flags.
func DefaultConfig() Config {
	return Config{MinReplicas: 2, Tolerance: 0.5, Threshold: 0.1, Lifetime: 12 * time.Hour, QuickOOMTime: 10 * time.Minute, StabilizationWindow: 10 * time.Minute}
}

// Maximum time in a resize state before mode InPlaceOrRecreate evicts.
const (
	DeferredTimeout   = 5 * time.Minute
	InProgressTimeout = time.Hour
)

// Cause is why a pod is changed.
type Cause string

// The causes.
const (
	Changed     Cause = "Changed"     // old enough, and the change is large enough
	OutOfBounds Cause = "OutOfBounds" // a request is outside the recommended bounds
	OutOfMemory Cause = "OutOfMemory" // a container ran out of memory soon after its start
	ResizeStuck Cause = "ResizeStuck" // a resize was not completed, so the pod is evicted
	Retry       Cause = "Retry"       // a resize was not completed, so another target is requested
	BoostOver   Cause = "BoostOver"   // the startup boost ended
	BoostMissed Cause = "BoostMissed" // created before the webhook had its VPA, so it has no startup boost

	// Causes of sharing node headroom.
	Shared        Cause = "Shared"        // the share changed
	ShareEnded    Cause = "ShareEnded"    // the pod no longer shares, and gets its peak
	ShareReverted Cause = "ShareReverted" // the share did harm, so the pod gets its peak
	NodeCrowded   Cause = "NodeCrowded"   // the bases of the pods on the node exceed the node
	MemoryRefused Cause = "MemoryRefused" // out of shared memory, and the node refuses more
)

// Shares reports whether the change concerns a share. Such changes are not part of rollouts.
func (c Cause) Shares() bool {
	switch c {
	case Shared, ShareEnded, ShareReverted, NodeCrowded, MemoryRefused:
		return true
	}
	return false
}

// Recommended reports whether the container has a recommendation.
func (c *Container) Recommended() bool { return !c.Target.Bounds.Target.Empty() }

// Changes reports whether the target of kind k differs from the resources in from.
func (c *Container) Changes(k resources.Kind, from policy.Container) bool {
	return differs(c.Target.Requests, from.Requests, k) || differs(c.Target.Limits, from.Limits, k)
}

// differs reports whether wanted has kind k with another amount than has.
func differs(wanted, has resources.List, k resources.Kind) bool {
	a, ok := wanted.Get(k)
	if !ok {
		return false
	}
	b, ok := has.Get(k)
	return !ok || a != b
}

// The methods below ignore containers that were added after the webhook, which has not sized them.

// NeedsChange reports whether the target differs from the actual resources.
func (p *Pod) NeedsChange() bool {
	return p.AnyObserved(func(c *Container, k resources.Kind) bool { return c.Changes(k, c.Actual) })
}

// ChangesSpec reports whether a resize would change the spec.
func (p *Pod) ChangesSpec() bool {
	return p.AnyObserved(func(c *Container, k resources.Kind) bool { return c.Changes(k, c.Spec) })
}

// WouldRestart reports whether a resize would restart a container.
func (p *Pod) WouldRestart() bool {
	return p.AnyObserved(func(c *Container, k resources.Kind) bool {
		return c.Restarts[k] && (c.Changes(k, c.Actual) || c.Changes(k, c.Spec))
	})
}

// RestartsFor reports whether applying f restarts the container.
func (c *Container) RestartsFor(f policy.ContainerTarget) bool {
	for k := range resources.Kind(resources.Kinds) {
		if c.Restarts[k] && (differs(f.Requests, c.Spec.Requests, k) || differs(f.Limits, c.Spec.Limits, k)) {
			return true
		}
	}
	return false
}

// AnyObserved reports whether holds is true for any kind of any container the webhook observed.
func (p *Pod) AnyObserved(holds func(*Container, resources.Kind) bool) bool {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Observed && (holds(c, resources.CPU) || holds(c, resources.Memory)) {
			return true
		}
	}
	return false
}

// ResizeUnreported reports whether the spec has the target but the kubelet reports no trace of it.
func (p *Pod) ResizeUnreported() bool {
	return p.Resize == NotResizing && p.NeedsChange() && !p.ChangesSpec()
}

// Change returns the planned change of requests and of independent memory limits.
func (p *Pod) Change() Change {
	c := Change{Before: PodResources{}, After: PodResources{}}
	for i := range p.Containers {
		one := &p.Containers[i]
		if !one.Observed {
			continue
		}
		c.Before[one.Spec.Name], c.After[one.Spec.Name] = one.Spec.Requests, one.After().Requests
		if limit, some := independentLimit(one.Target); some {
			name := one.Spec.Name + limitSuffix
			c.Before[name] = resources.List{}.With(resources.Memory, one.Spec.Limits.Value(resources.Memory))
			c.After[name] = resources.List{}.With(resources.Memory, limit)
		}
	}
	return c
}

func independentLimit(f policy.ContainerTarget) (limit resources.Amount, ok bool) {
	if f.MemoryLimit == (policy.LimitSpan{}) {
		return 0, false
	}
	return f.Limits.Get(resources.Memory)
}

// Targets returns the targets of the observed containers that have any.
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

// PartialChange returns a copy of the pod that changes by a fraction of each kind, in millionths.
func (p *Pod) PartialChange(of [resources.Kinds]resources.Amount) *Pod {
	part := *p
	part.Containers = slices.Clone(p.Containers)
	for i := range part.Containers {
		c := &part.Containers[i]
		for k, millionths := range of {
			if millionths < policy.FullFraction {
				c.Target = policy.Interpolate(resources.Kind(k), millionths, c.Spec, c.Target)
			}
		}
	}
	return &part
}

// WithoutCPUChange returns a copy with a target that keeps its actual CPU, not that of the spec.
func (p *Pod) WithoutCPUChange() *Pod {
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

// ShrinksMemory reports whether a resize lowers a memory limit. The kubelet refuses this while the
// memory is in use, and retries by itself. A working pod is not evicted for it, because its
// replacement would have less memory than it uses.
func (p *Pod) ShrinksMemory() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		asked, limited := c.Spec.Limits.Get(resources.Memory)
		return limited && asked < c.Actual.Limits.Value(resources.Memory)
	})
}
