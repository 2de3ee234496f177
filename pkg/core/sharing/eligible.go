package sharing

import (
	"cmp"
	"time"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// MinAge is how long a workload must have existed for its base and peak to say something, unless
// somebody wants something else.
const MinAge = time.Hour

// Facts are what decides whether a pod shares. Of a pod that is being created the last five are
// false.
type Facts struct {
	Excluded    bool
	Off         bool // see OptedOut
	GPUs        bool // its node has some
	PodLevel    bool
	Guaranteed  bool                  // its class
	Shared      [resources.Kinds]bool // that its policy shares
	HPA         [resources.Kinds]bool // at which HorizontalPodAutoscalers look in any of its containers
	Recommended bool                  // base and peak of a container are known
	Restarts    [resources.Kinds]bool // of which another size restarts a container
	Age         time.Duration         // of its workload
	MinAge      time.Duration         // that its workload must have; 0: MinAge
	Short       bool                  // its policy requires more usage behind a recommendation
	Reverted    bool                  // see Mark.Out
	Pending     bool
	Terminating bool
	Boosted     bool
	Resizing    bool // a resize is under way, waits or was refused
}

// Lasts reports whether a reason rarely ends, so that pods with a share lose it.
func Lasts(r reason.Reason) bool {
	switch r {
	case reason.Excluded, reason.SharingOff, reason.GPUNode, reason.PodLevelResources, reason.Guaranteed, reason.RestartsOnResize, reason.ManagedByHPA:
		return true
	}
	return false
}

// Eligible returns why a pod does not share what its node has left, empty if it does.
func Eligible(f Facts) reason.Reason {
	scaled, restarts := false, false
	for k, shared := range f.Shared {
		scaled, restarts = scaled || shared && f.HPA[k], restarts || shared && f.Restarts[k]
	}
	for _, one := range [...]struct {
		holds bool
		reason.Reason
	}{
		{f.Excluded, reason.Excluded}, {f.Off, reason.SharingOff}, {f.GPUs, reason.GPUNode}, {f.PodLevel, reason.PodLevelResources}, {f.Guaranteed, reason.Guaranteed},
		{restarts, reason.RestartsOnResize}, {scaled, reason.ManagedByHPA}, {!f.Recommended, reason.NoRecommendation}, {f.Age < cmp.Or(f.MinAge, MinAge), reason.NewWorkload}, {f.Short, reason.ShortHistory},
		{f.Reverted, reason.Reverted}, {f.Pending, reason.NotRunning}, {f.Terminating, reason.Terminating}, {f.Boosted, reason.Boosted}, {f.Resizing, reason.Resizing},
	} {
		if one.holds {
			return one.Reason
		}
	}
	return ""
}
