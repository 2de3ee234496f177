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

// MinAge is how long a workload must have existed for its base and peak to say something, unless
// somebody wants something else.
const MinAge = time.Hour

// Facts are what decides whether a pod shares. Of a pod that is being created the last five are false.
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

// EndsSharing reports whether a reason rarely ends, so that pods with a share lose it.
func EndsSharing(r reason.Reason) bool {
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

// CPULimit is the treatment of the CPU limits of pods that share. A limit that follows a share
// would throttle the peaks that the headroom is for.
type CPULimit uint8

// The treatments of CPU limits.
const (
	KeepLimit   CPULimit = iota // kept, and cap the requests
	RemoveLimit                 // removed from new pods; in running pods the same as NodeLimit
	NodeLimit                   // raised in running pods to the allocatable CPU of the node
)

// Mark is what is written on a pod that was given its share: it says who leaves sharing after a
// restart, and when a share did harm. The zero value is none.
type Mark struct {
	Kinds [resources.Kinds]bool // that the pod shares
	// At is when it was made smaller, or got its peak back, and Restarts how often its containers
	// had been restarted by then. Zero: it only grew.
	At       time.Time
	Restarts int
	Reverted bool // its share did harm, so it has its peak
}

const (
	// RevertFor is how long a pod whose share did harm keeps its peak.
	RevertFor = 24 * time.Hour
	// watch is how long after a pod was made smaller restarts count as harm.
	watch = 15 * time.Minute
)

// Out reports whether the pod has its peak at now because its share did harm. A time that no
// updater can have written says nothing.
func (m Mark) Out(now time.Time) bool {
	return m.Reverted && m.since(now, RevertFor)
}

// Harmed reports whether the pod was restarted so often since it was made smaller that its share is to be taken back.
func (m Mark) Harmed(restarts, most int, now time.Time) bool {
	return !m.Reverted && m.since(now, watch) && restarts >= m.Restarts+max(most, 1)
}

// Restarted reports whether the pod was restarted since it was made smaller, not long ago: it is not
// made still smaller then, and what it is watched for goes on to count.
func (m Mark) Restarted(restarts int, now time.Time) bool {
	return !m.Reverted && m.since(now, watch) && restarts > m.Restarts
}

// since reports whether what the mark says was at most some time ago.
func (m Mark) since(now time.Time, most time.Duration) bool {
	age := now.Sub(m.At)
	return age < most && age > -most
}

const (
	// OOMCooldown is how long after an out-of-memory kill that was recorded no other one of the same
	// container of the same pod is.
	OOMCooldown = 5 * time.Minute
	// OOMPause is how long after an out-of-memory kill the memory of a pod is not made smaller.
	OOMPause = 5 * time.Minute
)

// OOMKill is an out-of-memory kill of a container of a pod, and what decides what is done about it.
type OOMKill struct {
	At time.Time
	// Recorded is the last kill of the same container of the same pod that was recorded, which may be
	// this one; zero: none was.
	Recorded    time.Time
	Recommended bool // base and peak of the container are known
	Shared      bool // the pod shares memory
	Gone        bool // the pod is, or is being deleted
	Excluded    bool // its workload or namespace is not sized at all
	Off         bool // see OptedOut
	Rank        Rank
	Evict       bool // the policy lets pods be evicted
}

// OOMAnswer is what is done about a kill. What it says of the memory that is needed the recipe takes
// from the history, which has all kills.
type OOMAnswer struct {
	Recorded bool          // the kill is the one from which the cooldown counts
	Reason   reason.Reason // why nothing else is done; empty: the container gets its peak of memory, in place
	MayEvict bool          // where that is refused the pod may be evicted
}

// AfterOOM says what is done about a kill. More memory comes in place: the pod lives, and an eviction
// is only for where its node refuses that.
func AfterOOM(k OOMKill) OOMAnswer {
	if !k.Recorded.IsZero() && !k.At.Equal(k.Recorded) && k.At.Sub(k.Recorded) < OOMCooldown {
		return OOMAnswer{Reason: reason.OOMCooling}
	}
	answer := OOMAnswer{Recorded: true}
	for _, one := range [...]struct {
		holds bool
		reason.Reason
	}{
		{!k.Recommended, reason.NoRecommendation}, {!k.Shared, reason.MemoryNotShared}, {k.Gone, reason.Terminating}, {k.Excluded, reason.Excluded}, {k.Off, reason.SharingOff},
	} {
		if one.holds {
			answer.Reason = one.Reason
			return answer
		}
	}
	answer.MayEvict = k.Evict && k.Rank != Never
	return answer
}

// Annotations of a workload, or of its pod template.
const (
	// RankAnnotation says in which order its pods leave a node: low, medium, high or no-eviction.
	RankAnnotation = "loadline.dev/eviction-ranking"
	// OffAnnotation takes its pods out of sharing with the value "off". They are sized as the
	// pods of any other workload.
	OffAnnotation = "loadline.dev/sharing"
)

const on, off = "on", "off"

// Rank is in which order pods leave.
type Rank uint8

// The ranks.
const (
	Low    Rank = iota // leaves first
	Medium             // after those
	High               // last
	Never
)

var rankNames = [...]string{Low: "low", Medium: "medium", High: "high", Never: "no-eviction"}

// String returns the rank as RankAnnotation spells it.
func (r Rank) String() string { return rankNames[r] }

// RankNames returns the values of RankAnnotation, from Low to Never.
func RankNames() []string { return slices.Clone(rankNames[:]) }

// ParseRank returns the rank with a name.
func ParseRank(name string) (rank Rank, ok bool) {
	at := slices.Index(rankNames[:], name)
	return Rank(max(at, 0)), at >= 0 //nolint:gosec // there are four
}

// DefaultRank returns the rank of the pods of a workload that has no annotation: Medium where one is missed, in a
// StatefulSet or where there is no other, else Low. Replicas that are not known are below 0 and count as one.
func DefaultRank(kind string, replicas int) Rank {
	if kind == "StatefulSet" || replicas <= 1 {
		return Medium
	}
	return Low
}

// RankOf returns the rank of the pods of a workload by its annotations and those of its pod
// template, and what is wrong with them, if anything. The highest of several counts. A value
// that cannot be read counts as Never: who wrote it did not want the pods to be evicted.
func RankOf(kind string, replicas int, annotations ...map[string]string) (rank Rank, problem string) {
	annotated := false
	for _, of := range annotations {
		value, there := of[RankAnnotation]
		if !there {
			continue
		}
		asked, ok := ParseRank(value)
		if !ok {
			asked = Never
			problem = cmp.Or(problem, complaint(RankAnnotation, value, strings.Join(rankNames[:], ", "), Never.String()))
		}
		rank, annotated = max(rank, asked), true
	}
	if !annotated {
		rank = DefaultRank(kind, replicas)
	}
	return rank, problem
}

// OptedOut reports whether the annotations of a workload, or those of its pod template, take its pods out of sharing,
// and what is wrong with them, if anything. A value that cannot be read takes them out.
func OptedOut(annotations ...map[string]string) (out bool, problem string) {
	for _, of := range annotations {
		value, there := of[OffAnnotation]
		if !there || value == on {
			continue
		}
		out = true
		if value != off {
			problem = cmp.Or(problem, complaint(OffAnnotation, value, "on, "+off, off))
		}
	}
	return out, problem
}

// longestValue is how many characters of a wrong value are shown, of the 256 KiB that an annotation may have.
const longestValue = 40

func complaint(key, value, right, taken string) string {
	return fmt.Sprintf("annotation %s is %.*q: must be one of %s; it counts as %s", key, longestValue, value, right, taken)
}
