// Package reason lists why Loadline does not change a pod, or does not let it share node headroom.
//
// Metrics, events, logs, HTTP responses, kubectl loadline and the docs use the names of this list.
// It imports nothing, so that every stage can return a reason.
package reason

// Reason is why a pod is skipped or does not share. The set is closed. The empty Reason means that
// nothing prevents a change.
type Reason string

// Skipped pods: the VPA or the SizingPolicy allows no change.
const (
	NoVPA            Reason = "NoVPA"
	OwnerUnreadable  Reason = "OwnerUnreadable"
	TargetUnreadable Reason = "TargetUnreadable"
	VPAUnreadable    Reason = "VPAUnreadable"

	OptedOut      Reason = "OptedOut"
	PolicyUnknown Reason = "PolicyUnknown"
	PolicyPaused  Reason = "PolicyPaused"
	Observing     Reason = "Observing"
	RecommendOnly Reason = "RecommendOnly"

	EvictionNotAllowed Reason = "EvictionNotAllowed"
	JobNotResized      Reason = "JobNotResized"
	NoRecord           Reason = "NoRecord"
)

// Skipped pods: the rollout of a SizingPolicy holds them.
const (
	NotInCanary      Reason = "NotInCanary"
	CoolingDown      Reason = "CoolingDown"
	OutsideWindow    Reason = "OutsideWindow"
	UnderObservation Reason = "UnderObservation"
	Halted           Reason = "Halted"
	FuseTripped      Reason = "FuseTripped"
	StartRate        Reason = "StartRate"
	ShortHistory     Reason = "ShortHistory"
	ManagedByHPA     Reason = "ManagedByHPA"
	RevertBackoff    Reason = "RevertBackoff"
	NodePressure     Reason = "NodePressure"
	NodeUnknown      Reason = "NodeUnknown"
)

// Skipped pods: the plan contains no change for them.
const (
	ModeOff           Reason = "ModeOff"
	StatusOutdated    Reason = "StatusOutdated"
	RolloutInProgress Reason = "RolloutInProgress"
	BackingOff        Reason = "BackingOff"
	Stabilizing       Reason = "Stabilizing"

	Boosted            Reason = "Boosted"
	NoRecommendation   Reason = "NoRecommendation"
	PodLevelResources  Reason = "PodLevelResources"
	Unchanged          Reason = "Unchanged"
	OutsideLimitRange  Reason = "OutsideLimitRange"
	TooYoung           Reason = "TooYoung"
	SmallChange        Reason = "SmallChange"
	RequirementsNotMet Reason = "RequirementsNotMet"

	ProtectedFromEviction Reason = "ProtectedFromEviction"
	CountsAsFailure       Reason = "CountsAsFailure"
	OlderRevision         Reason = "OlderRevision"

	ModeNotEnabled   Reason = "ModeNotEnabled"
	NotRunning       Reason = "NotRunning"
	WaitingForNode   Reason = "WaitingForNode"
	Deferred         Reason = "Deferred"
	Infeasible       Reason = "Infeasible"
	ResizeFailed     Reason = "ResizeFailed"
	NoOwner          Reason = "NoOwner"
	BelowMinReplicas Reason = "BelowMinReplicas"
	NoBudget         Reason = "NoBudget"
	BudgetSpent      Reason = "BudgetSpent"

	ClassWouldChange  Reason = "ClassWouldChange"
	StaticCPU         Reason = "StaticCPU"
	QuotaFull         Reason = "QuotaFull"
	NodeFull          Reason = "NodeFull"
	TooLargeForNode   Reason = "TooLargeForNode"
	RestartInProgress Reason = "RestartInProgress"

	HasShare        Reason = "HasShare"
	RecentlyShrunk  Reason = "RecentlyShrunk"
	ChangedOutside  Reason = "ChangedOutside"
	RecentlyEvicted Reason = "RecentlyEvicted"
)

// Skipped pods: a planned change was not made.
const (
	DisruptionRateLimited Reason = "DisruptionRateLimited"
	RateLimited           Reason = "RateLimited"
	MemoryInUse           Reason = "MemoryInUse"
	ResizeRefused         Reason = "ResizeRefused"
	PodChanged            Reason = "PodChanged"
	NotRecordable         Reason = "NotRecordable"
	EvictionRefused       Reason = "EvictionRefused"
	WriteLimit            Reason = "WriteLimit"

	ReplacementRefused   Reason = "ReplacementRefused"
	ReplacementUnchanged Reason = "ReplacementUnchanged"
	ReplacementUnknown   Reason = "ReplacementUnknown"
	StaleCache           Reason = "StaleCache"
	BudgetTooLarge       Reason = "BudgetTooLarge"

	InternalError Reason = "InternalError"
)

// InitialSizingOff is the reason of new pods that the webhook admits unchanged. It has no
// Explanation.
const InitialSizingOff Reason = "InitialSizingOff"

// Pods that do not share. sharing.IneligibleReason returns most of these, and several of the
// reasons above.
const (
	Excluded         Reason = "Excluded"
	SharingOff       Reason = "SharingOff"
	GPUNode          Reason = "GPUNode"
	Guaranteed       Reason = "Guaranteed"
	RestartsOnResize Reason = "RestartsOnResize"
	NewWorkload      Reason = "NewWorkload"
	Reverted         Reason = "Reverted"
	Terminating      Reason = "Terminating"
	Resizing         Reason = "Resizing"
	TooLarge         Reason = "TooLarge"
	NoSharingPolicy  Reason = "NoSharingPolicy"

	// OOM kills without a resize to peak memory.
	OOMCooling      Reason = "OOMCooling"
	MemoryNotShared Reason = "MemoryNotShared"

	// Workloads without sharing, or with a dry run only.
	SharingOptedOut     Reason = "SharingOptedOut"
	ModeTooConservative Reason = "ModeTooConservative"
	RecipeDoesNotShare  Reason = "RecipeDoesNotShare"

	// Nodes without sharing.
	KubeletTooOld      Reason = "KubeletTooOld"
	SizeFollowsPods    Reason = "SizeFollowsPods"
	AllocatableUnknown Reason = "AllocatableUnknown"
)

// String returns the name of the reason.
func (r Reason) String() string { return string(r) }

// Explain returns the explanation of a reason, preferably as a skipped pod. It is zero for an
// unknown reason.
func (r Reason) Explain() Explanation { return explained[r] }

// All returns the explanations of every reason in the order of the docs. The result must not be modified.
func All() []Explanation { return explanations }

// SkipReasons returns the reasons of skipped pods in the order of the docs.
func SkipReasons() (all []Reason) {
	for _, e := range All() {
		if e.Scope == SkippedPod {
			all = append(all, e.Reason)
		}
	}
	return all
}
