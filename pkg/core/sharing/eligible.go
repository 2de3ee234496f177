package sharing

import (
	"cmp"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Reason is why a pod does not share. Its requests count for its node, and it is sized as the
// pods of any other workload; or why nothing is done about an out-of-memory kill. The set is closed.
type Reason string

// The reasons, in the order in which Eligible looks for them: what somebody wants comes first,
// then what lasts, then what passes.
const (
	Excluded          Reason = "Excluded"          // its workload or namespace is not sized at all
	SharingOff        Reason = "SharingOff"        // OffAnnotation
	GPUNode           Reason = "GPUNode"           // a node with GPUs has room for what they need
	PodLevelResources Reason = "PodLevelResources" // the pod as a whole has sizes, which bound its containers
	Guaranteed        Reason = "Guaranteed"        // each container has limits that equal its requests
	RestartsOnResize  Reason = "RestartsOnResize"  // another size of what would be shared restarts a container
	HPAOnResource     Reason = "HPAOnResource"     // a HorizontalPodAutoscaler looks at what would be shared
	NoRecommendation  Reason = "NoRecommendation"  // base and peak are not known of any container
	NewWorkload       Reason = "NewWorkload"       // its workload is younger than Facts.MinAge
	ShortHistory      Reason = "ShortHistory"      // its recommendation rests on less usage than its policy requires
	Reverted          Reason = "Reverted"          // its share did harm a while ago, so it has its peak
	NotRunning        Reason = "NotRunning"        // it is pending
	Terminating       Reason = "Terminating"       // it is being deleted
	Boosted           Reason = "Boosted"           // it has extra CPU while it starts
	Resizing          Reason = "Resizing"          // what it runs with is not what was asked for
)

// The reasons for which Eligible does not look.
const (
	TooLarge Reason = "TooLarge" // its bases are more than its node has for those who share, see Node.Holds
	Broken   Reason = "Broken"   // the program failed in an unforeseen way when it looked at the pod
)

// The reasons of AfterOOM, beside NoRecommendation, Terminating, Excluded and SharingOff.
const (
	OOMCooling      Reason = "OOMCooling"      // one of the same container was recorded less than OOMCooldown before
	MemoryNotShared Reason = "MemoryNotShared" // so the kill goes its usual way
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

// Lasts reports whether a pod with this reason will not share soon: one that did leaves.
func (r Reason) Lasts() bool {
	switch r {
	case Excluded, SharingOff, GPUNode, PodLevelResources, Guaranteed, RestartsOnResize, HPAOnResource:
		return true
	}
	return false
}

// Eligible returns why a pod does not share what its node has left, empty if it does.
func Eligible(f Facts) Reason {
	scaled, restarts := false, false
	for k, shared := range f.Shared {
		scaled, restarts = scaled || shared && f.HPA[k], restarts || shared && f.Restarts[k]
	}
	for _, one := range [...]struct {
		holds bool
		Reason
	}{
		{f.Excluded, Excluded}, {f.Off, SharingOff}, {f.GPUs, GPUNode}, {f.PodLevel, PodLevelResources}, {f.Guaranteed, Guaranteed},
		{restarts, RestartsOnResize}, {scaled, HPAOnResource}, {!f.Recommended, NoRecommendation}, {f.Age < cmp.Or(f.MinAge, MinAge), NewWorkload}, {f.Short, ShortHistory},
		{f.Reverted, Reverted}, {f.Pending, NotRunning}, {f.Terminating, Terminating}, {f.Boosted, Boosted}, {f.Resizing, Resizing},
	} {
		if one.holds {
			return one.Reason
		}
	}
	return ""
}
