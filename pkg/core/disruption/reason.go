package disruption

// Reason is why a pod is left alone. The set is closed: metrics, logs and docs
// name each of them. The empty Reason means that nothing speaks against a change.
type Reason string

// The reasons. Those from DisruptionRateLimited on are not found by a plan but by whoever
// carries it out.
const (
	ModeOff            Reason = "ModeOff"            // the update mode does not change running pods
	ModeNotEnabled     Reason = "ModeNotEnabled"     // mode InPlace needs a feature gate that is off
	StatusOutdated     Reason = "StatusOutdated"     // what is recommended may be for a target that the VPA had before
	Boosted            Reason = "Boosted"            // it has extra CPU while it starts, which is taken back first
	NoRecommendation   Reason = "NoRecommendation"   // no container of the pod has one
	PodLevelResources  Reason = "PodLevelResources"  // spec.resources of the pod bounds its containers, so they are not sized
	Unchanged          Reason = "Unchanged"          // the pod has what it would get
	OutsideLimitRange  Reason = "OutsideLimitRange"  // a LimitRange would refuse the recommended sizes
	TooYoung           Reason = "TooYoung"           // within its bounds and not running for long enough
	SmallChange        Reason = "SmallChange"        // within its bounds and would change too little
	RequirementsNotMet Reason = "RequirementsNotMet" // the eviction requirements of the VPA do not hold
	NoOwner            Reason = "NoOwner"            // the owner is gone, unknown, or wants no replicas
	BelowMinReplicas   Reason = "BelowMinReplicas"   // the owner has fewer live pods than the minimum
	NoBudget           Reason = "NoBudget"           // too few pods of the owner are there to spare one
	BudgetSpent        Reason = "BudgetSpent"        // more urgent pods have used the budget of this pass
	RolloutUnderWay    Reason = "RolloutUnderWay"    // the workload is being rolled out
	RestartUnderWay    Reason = "RestartUnderWay"    // another pod of its owner, or of one of its PodDisruptionBudgets, is being restarted by a resize
	BackingOff         Reason = "BackingOff"         // earlier changes had no effect: new pods came back without them or with a part, or the same was asked in vain
	Stabilizing        Reason = "Stabilizing"        // the change would undo the last one too soon
	QuotaFull          Reason = "QuotaFull"          // a ResourceQuota leaves too little
	NodeFull           Reason = "NodeFull"           // no node, or for a resize not its own, has room now
	TooLargeForNode    Reason = "TooLargeForNode"    // no node, or for a resize not its own, is large enough
	ClassWouldChange   Reason = "ClassWouldChange"   // a resize would change the QoS class, and the mode allows no eviction
	StaticCPU          Reason = "StaticCPU"          // the node gives a pod of class Guaranteed no other CPU in place, and an eviction is not allowed or no use
	NotRunning         Reason = "NotRunning"         // the pod is pending, so it cannot be resized
	WaitingForNode     Reason = "WaitingForNode"     // a resize is under way, or was accepted and not acted on
	Deferred           Reason = "Deferred"           // the node has no room for the resize now
	Infeasible         Reason = "Infeasible"         // the node can never grant what was asked, and no lower target came since
	ResizeFailed       Reason = "ResizeFailed"       // the node tried and failed, and the mode allows no eviction

	DisruptionRateLimited Reason = "DisruptionRateLimited" // many pods are due at once, and this one has to wait for its turn
	MemoryInUse           Reason = "MemoryInUse"           // the pod uses so much memory that no cut of its limit is worth a resize
	RateLimited           Reason = "RateLimited"           // the pass ended before the rate limit allowed the change
	ResizeRefused         Reason = "ResizeRefused"         // the API server refused the resize
	EvictionRefused       Reason = "EvictionRefused"       // the API server refused the eviction, as for a PodDisruptionBudget
	Broken                Reason = "Broken"                // the pod or its VPA could not be understood
)

// String returns the name that metrics, logs and docs use.
func (r Reason) String() string { return string(r) }

// Reasons returns all reasons in the order of their declaration.
func Reasons() []Reason {
	return []Reason{ModeOff, ModeNotEnabled, StatusOutdated, Boosted, NoRecommendation, PodLevelResources, Unchanged, OutsideLimitRange, TooYoung,
		SmallChange, RequirementsNotMet, NoOwner, BelowMinReplicas, NoBudget, BudgetSpent, RolloutUnderWay, RestartUnderWay, BackingOff, Stabilizing,
		QuotaFull, NodeFull, TooLargeForNode, ClassWouldChange, StaticCPU, NotRunning, WaitingForNode, Deferred,
		Infeasible, ResizeFailed, DisruptionRateLimited, MemoryInUse, RateLimited, ResizeRefused, EvictionRefused, Broken}
}

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
)
