package sharing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// MinAge is the default minimum age of a workload for its base and peak to be meaningful.
const MinAge = time.Hour

// PodFacts decide whether a pod shares. The last five are false for a pod that is being created.
type PodFacts struct {
	Excluded          bool
	Off               bool // see OptedOut
	GPUNode           bool // the node has GPUs
	PodLevelResources bool
	Guaranteed        bool                  // QoS class
	Shared            [resources.Kinds]bool // kinds that the policy shares
	HPA               [resources.Kinds]bool // kinds that HorizontalPodAutoscalers scale any container by
	Recommended       bool                  // base and peak of a container are available
	Restarts          [resources.Kinds]bool // kinds with a restart on resize
	Age               time.Duration         // of the workload
	MinAge            time.Duration         // of the workload, 0 means MinAge
	ShortHistory      bool                  // less usage history than the policy requires
	Reverted          bool                  // see Mark.RevertActive
	Pending           bool
	Terminating       bool
	Boosted           bool
	Resizing          bool // a resize is in progress, deferred or infeasible
}

// EndsSharing reports whether a reason rarely goes away, so that pods with a share lose it.
func EndsSharing(r reason.Reason) bool {
	switch r {
	case reason.Excluded, reason.SharingOff, reason.GPUNode, reason.PodLevelResources, reason.Guaranteed, reason.RestartsOnResize, reason.ManagedByHPA:
		return true
	}
	return false
}

// IneligibleReason returns why a pod does not share the headroom of its node, or "" if it does.
func IneligibleReason(f PodFacts) reason.Reason {
	scaled, restarts := false, false
	for k, shared := range f.Shared {
		scaled, restarts = scaled || shared && f.HPA[k], restarts || shared && f.Restarts[k]
	}
	for _, one := range [...]struct {
		holds bool
		reason.Reason
	}{
		{f.Excluded, reason.Excluded}, {f.Off, reason.SharingOff}, {f.GPUNode, reason.GPUNode}, {f.PodLevelResources, reason.PodLevelResources}, {f.Guaranteed, reason.Guaranteed},
		{restarts, reason.RestartsOnResize}, {scaled, reason.ManagedByHPA}, {!f.Recommended, reason.NoRecommendation}, {f.Age < cmp.Or(f.MinAge, MinAge), reason.NewWorkload}, {f.ShortHistory, reason.ShortHistory},
		{f.Reverted, reason.Reverted}, {f.Pending, reason.NotRunning}, {f.Terminating, reason.Terminating}, {f.Boosted, reason.Boosted}, {f.Resizing, reason.Resizing},
	} {
		if one.holds {
			return one.Reason
		}
	}
	return ""
}

// CPULimit is the treatment of the CPU limits of sharing pods. A limit in proportion to the share
// would throttle the peaks that the headroom is meant for.
type CPULimit uint8

// Treatments of CPU limits.
const (
	KeepLimit   CPULimit = iota // kept, and caps the requests
	RemoveLimit                 // removed from new pods, NodeLimit for running pods
	NodeLimit                   // raised to the allocatable CPU of the node
)

// Mark is stored on a pod with a share, to detect restarts after a reduction; zero: none.
type Mark struct {
	Kinds [resources.Kinds]bool // kinds that the pod shares
	// At is the last reduction or revert, Restarts the count at that time. Zero: the pod only grew.
	At       time.Time
	Restarts int
	Reverted bool // the share did harm, so the pod has its peak
}

const (
	// RevertFor is how long a pod with a harmful share keeps its peak.
	RevertFor = 24 * time.Hour
	// observationPeriod is how long restarts after a reduction count as harm.
	observationPeriod = 15 * time.Minute
)

// RevertActive reports whether the pod has its peak because of harm. It ignores implausible times.
func (m Mark) RevertActive(now time.Time) bool {
	return m.Reverted && m.isRecent(now, RevertFor)
}

// Harmed reports whether the pod has restarted often enough since its reduction for a revert.
func (m Mark) Harmed(restarts, limit int, now time.Time) bool {
	return !m.Reverted && m.isRecent(now, observationPeriod) && restarts >= m.Restarts+max(limit, 1)
}

// Restarted reports whether a pod restarted since its reduction. It is then not reduced further.
func (m Mark) Restarted(restarts int, now time.Time) bool {
	return !m.Reverted && m.isRecent(now, observationPeriod) && restarts > m.Restarts
}

func (m Mark) isRecent(now time.Time, maxAge time.Duration) bool {
	age := now.Sub(m.At)
	return age < maxAge && age > -maxAge
}

const (
	// OOMCooldown is the minimum time between two recorded OOM kills of a container.
	OOMCooldown = 5 * time.Minute
	// OOMPause is how long the memory of a pod is not reduced after an OOM kill.
	OOMPause = 5 * time.Minute
)

// OOMKill is an OOM kill of a container of a pod, with the facts that decide the response.
type OOMKill struct {
	At time.Time
	// Recorded is the last recorded kill of the container, possibly this one; zero: none.
	Recorded    time.Time
	Recommended bool // base and peak of the container are available
	Shared      bool // the pod shares memory
	Gone        bool // the pod is deleted or terminating
	Excluded    bool // workload or namespace is excluded from sizing
	Off         bool // see OptedOut
	Rank        Rank
	Evict       bool // the policy allows evictions
}

// OOMResponse is the response to a kill. The recipe derives the memory from the usage history.
type OOMResponse struct {
	Recorded bool          // the cooldown starts at this kill
	Reason   reason.Reason // why nothing else is done, empty resizes memory to its peak in place
	MayEvict bool          // the pod may be evicted if the resize is rejected
}

// RespondToOOM returns the response to a kill. More memory comes by in-place resize, so that the
// pod survives. Eviction is the fallback if the node rejects the resize.
func RespondToOOM(k OOMKill) OOMResponse {
	if !k.Recorded.IsZero() && !k.At.Equal(k.Recorded) && k.At.Sub(k.Recorded) < OOMCooldown {
		return OOMResponse{Reason: reason.OOMCooling}
	}
	response := OOMResponse{Recorded: true}
	for _, one := range [...]struct {
		holds bool
		reason.Reason
	}{
		{!k.Recommended, reason.NoRecommendation}, {!k.Shared, reason.MemoryNotShared}, {k.Gone, reason.Terminating}, {k.Excluded, reason.Excluded}, {k.Off, reason.SharingOff},
	} {
		if one.holds {
			response.Reason = one.Reason
			return response
		}
	}
	response.MayEvict = k.Evict && k.Rank != Never
	return response
}

// Annotations of a workload or of its pod template.
const (
	// RankAnnotation sets the eviction order of the pods: low, medium, high or no-eviction.
	RankAnnotation = "loadline.dev/eviction-ranking"
	// SharingAnnotation with value "off" excludes the pods from sharing.
	SharingAnnotation = "loadline.dev/sharing"
)

const on, off = "on", "off"

// Rank is the eviction order of a pod.
type Rank uint8

// Ranks.
const (
	Low Rank = iota // evicted first
	Medium
	High // evicted last
	Never
)

var rankNames = [...]string{Low: "low", Medium: "medium", High: "high", Never: "no-eviction"}

// String returns the rank as spelled in RankAnnotation.
func (r Rank) String() string { return rankNames[r] }

// RankNames returns the values of RankAnnotation, from Low to Never.
func RankNames() []string { return slices.Clone(rankNames[:]) }

// ParseRank returns the rank with a name.
func ParseRank(name string) (rank Rank, ok bool) {
	at := slices.Index(rankNames[:], name)
	return Rank(max(at, 0)), at >= 0 //nolint:gosec // there are four
}

// DefaultRank returns the rank of a workload without annotation: Medium for a StatefulSet or a
// single replica, else Low. An unknown, negative number of replicas counts as one.
func DefaultRank(kind string, replicas int) Rank {
	if kind == "StatefulSet" || replicas <= 1 {
		return Medium
	}
	return Low
}

// RankOf returns the highest rank in the annotations, else the default, and a problem with them. An
// invalid value counts as Never, because its author intended to restrict evictions.
func RankOf(kind string, replicas int, annotations ...map[string]string) (rank Rank, problem string) {
	annotated := false
	for _, source := range annotations {
		value, present := source[RankAnnotation]
		if !present {
			continue
		}
		requested, ok := ParseRank(value)
		if !ok {
			requested = Never
			problem = cmp.Or(problem, problemText(RankAnnotation, value, strings.Join(rankNames[:], ", "), Never.String()))
		}
		rank, annotated = max(rank, requested), true
	}
	if !annotated {
		rank = DefaultRank(kind, replicas)
	}
	return rank, problem
}

// OptedOut reports whether annotations exclude the pods, as invalid values do, and a problem.
func OptedOut(annotations ...map[string]string) (out bool, problem string) {
	for _, source := range annotations {
		value, present := source[SharingAnnotation]
		if !present || value == on {
			continue
		}
		out = true
		if value != off {
			problem = cmp.Or(problem, problemText(SharingAnnotation, value, "on, "+off, off))
		}
	}
	return out, problem
}

// maxValueLength is the number of displayed characters of a value, which may have 256 KiB.
const maxValueLength = 40

func problemText(key, value, valid, effective string) string {
	return fmt.Sprintf("annotation %s is %.*q: must be one of %s; it counts as %s", key, maxValueLength, value, valid, effective)
}
