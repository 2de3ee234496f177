package sharing

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
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

// Harmed reports whether the pod was restarted so often since it was made smaller that its share
// is to be taken back.
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
