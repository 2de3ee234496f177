package olddisruption

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
	BoostMissed Cause = "BoostMissed" // it was created before the webhook knew its VPA, so it has no startup boost

	// Of pods that share what their node has left.
	Shared        Cause = "Shared"        // its share has changed
	ShareEnded    Cause = "ShareEnded"    // it shares no more, and gets its peak
	ShareReverted Cause = "ShareReverted" // its share did harm, so it gets its peak
	NodeCrowded   Cause = "NodeCrowded"   // those that share its node need more than there is
	MemoryRefused Cause = "MemoryRefused" // it ran out of memory that it shares, and its node refuses it more
)

// Shares reports whether the change is one of sharing. It is part of no rollout.
func (c Cause) Shares() bool {
	switch c {
	case Shared, ShareEnded, ShareReverted, NodeCrowded, MemoryRefused:
		return true
	}
	return false
}
