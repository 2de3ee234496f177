package disruption

import (
	"time"

	"loadline.dev/loadline/pkg/core/capacity"
)

// View is the part of the cluster that a plan is made for.
type View struct {
	VPAs []VPA
	// Others are pods of no VPA that are being restarted, or were: those that share a
	// PodDisruptionBudget with them wait.
	Others []Pod
	Room   *capacity.Capacity // what nodes and quotas have left; nil: not asked
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
}

// How long a resize may stay under way before mode InPlaceOrRecreate evicts.
const (
	DeferredTimeout   = 5 * time.Minute
	InProgressTimeout = time.Hour
)
