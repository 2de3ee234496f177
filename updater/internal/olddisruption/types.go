package olddisruption

import (
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

// Unknown is the number of replicas of an owner that does not state it. The
// live pods count instead.
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
	Leaves               bool          // it is to leave its node, whatever it would get: those that share that need more than there is
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
	// Shares is what it shares with others of its node; nil: nothing.
	Shares *Shares
}

// Shares is what a pod shares with others of its node, which plans of all else do not look at.
type Shares struct {
	// Whole are the Containers with that, too, as a new pod would have them.
	Whole []Container
	// Refused is why the pod, which ran out of memory that it shares and may be evicted for that, gets
	// no more in place; empty: it does, or must not be evicted.
	Refused reason.Reason
}

// whole returns the Containers with what the pod shares; nil: it shares nothing.
func (p *Pod) whole() []Container {
	if p.Shares == nil {
		return nil
	}
	return p.Shares.Whole
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
	Current  policy.Container       // what it runs with
	Asked    policy.Container       // what its spec asks for; differs from Current during a resize
	Fitted   policy.ContainerTarget // what it would get
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
	OnlyFitting         bool          // a resize for which its node has no room now is not asked for, and waits in no kubelet
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
