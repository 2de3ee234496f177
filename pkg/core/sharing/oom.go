package sharing

import "loadline.dev/loadline/pkg/core/reason"

import "time"

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
