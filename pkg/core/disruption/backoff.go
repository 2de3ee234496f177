package disruption

import (
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// PodResources holds the requests of a pod by container name, and independent memory limits by
// container name plus limitSuffix. It is immutable once it is in a ChangeRecord.
type PodResources map[string]resources.List

// limitSuffix contains a blank, so that it never collides with a container name.
const limitSuffix = " limit"

// Change is one change of a pod's resources.
type Change struct {
	Before, After PodResources
}

// Forget removes a kind from the change as if it had no recommendation.
func (c Change) Forget(k resources.Kind) {
	for name, after := range c.After {
		c.After[name] = after.Without(k)
	}
}

// ChangeRecord holds the outcome of the changes of one workload. The zero value is an empty record.
type ChangeRecord struct {
	Last   Change
	At     time.Time // time of the last change
	Newest time.Time // creation time of the newest pod at that time
	Judged bool      // the outcome is known

	Backoff
	Reversals int // consecutive changes that reversed the previous one
}

// Backoff is the part of a ChangeRecord that is stored outside of the process. Zero: none.
type Backoff struct {
	Ineffective int       // consecutive changes that new pods did not have, or only in part
	Until       time.Time // no pod is disrupted before this time
}

// Resumed restores a backoff that an earlier process stored, unless a change is recorded. It
// ignores one that ends later than any valid one, plus clockSkew, or ended over maxRecordAge ago.
func (r ChangeRecord) Resumed(p Backoff, now time.Time) ChangeRecord {
	ours := !p.Until.After(now.Add(maxBackoff+clockSkew)) && now.Sub(p.Until) <= maxRecordAge
	if r.At.IsZero() && p.Until.After(r.Until) && ours {
		r.Backoff = p
		r.Ineffective = min(p.Ineffective, maxResumed)
	}
	return r
}

// maxResumed bounds a stored count, which users may edit, against overflow.
const maxResumed = 100

// Backoff after a change without effect, doubled for each consecutive one.
const (
	minBackoff   = 5 * time.Minute
	maxBackoff   = 12 * time.Hour
	maxRecordAge = 24 * time.Hour // how long a ChangeRecord is kept after its last change
	clockSkew    = time.Hour      // maximum clock difference between two processes
)

// Expired reports whether the record can be dropped at now.
func (r ChangeRecord) Expired(now time.Time) bool {
	return now.Sub(r.At) > maxRecordAge && now.After(r.Until)
}

// Observe updates the record from a pod of the workload: its creation time, and the change that it
// still needs. Pods created after the last change show whether that change had an effect.
func (r ChangeRecord) Observe(created time.Time, next Change, now time.Time) ChangeRecord {
	if !created.After(r.Newest) || r.At.IsZero() {
		return r
	}
	switch has := next.Before; {
	case r.Last.applied(has):
		r.Judged, r.Backoff = true, Backoff{}
	case !r.Judged && (r.Last.undone(has) || r.Last.partlyApplied(next)):
		r.Judged = true
		r.Ineffective++
		r.Until = now.Add(doubled(minBackoff, r.Ineffective-1, maxBackoff))
	case !r.Judged && r.Last.atTarget(next):
		r.Judged = true // otherwise a higher recommendation would make it look partial
	}
	return r
}

// BacksOff reports whether earlier disruptions without effect forbid disruptions at now.
func (r ChangeRecord) BacksOff(now time.Time) bool { return now.Before(r.Until) }

// Holds reports whether a change must wait at now because it reverses the last one: it returns to
// within a tenth of the earlier value, moves no kind further in the last direction, and shrinks a
// kind. The hold doubles with each reversal, up to a day.
func (r ChangeRecord) Holds(c Change, hold time.Duration, now time.Time) bool {
	return r.reversed(c) && c.shrinks() && now.Before(r.At.Add(doubled(hold, r.Reversals, maxRecordAge)))
}

// Changed records a change at now; newest is the creation time of the workload's newest pod.
func (r ChangeRecord) Changed(c Change, newest, now time.Time) ChangeRecord {
	if r.reversed(c) {
		r.Reversals++
	} else if !r.Last.sameDirection(c) {
		r.Reversals = 0
	}
	r.Last, r.At, r.Newest, r.Judged = c, now, newest, false
	return r
}

// reversed reports whether a change of requests returns to the values before the last one.
func (r ChangeRecord) reversed(c Change) bool {
	found := false
	for name, after := range c.After {
		if strings.HasSuffix(name, limitSuffix) {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			was, is := r.Last.step(name, k), c.step(name, k)
			if was == 0 || is == 0 {
				continue
			}
			if (was > 0) == (is > 0) {
				return false
			}
			before, target := r.Last.Before[name].Value(k), after.Value(k)
			found = found || near(before, target)
		}
	}
	return found
}

func near(a, b resources.Amount) bool { return max(a-b, b-a) <= max(a, b)/10 }

func (c Change) step(name string, k resources.Kind) resources.Amount {
	after, ok := c.After[name].Get(k)
	if !ok {
		return 0
	}
	return after - c.Before[name].Value(k)
}

func (c Change) any(holds func(name string, k resources.Kind) bool) bool {
	for name := range c.After {
		if holds(name, resources.CPU) || holds(name, resources.Memory) {
			return true
		}
	}
	return false
}

func (c Change) anyRequest(holds func(name string, k resources.Kind) bool) bool {
	return c.any(func(name string, k resources.Kind) bool {
		return !strings.HasSuffix(name, limitSuffix) && holds(name, k)
	})
}

func (c Change) shrinks() bool {
	return c.anyRequest(func(name string, k resources.Kind) bool { return c.step(name, k) < 0 })
}

func (c Change) sameDirection(d Change) bool {
	return !d.anyRequest(func(name string, k resources.Kind) bool {
		a, b := c.step(name, k), d.step(name, k)
		return (a > 0) != (b > 0) || (a < 0) != (b < 0)
	})
}

func (c Change) applied(has PodResources) bool {
	return !c.any(func(name string, k resources.Kind) bool {
		return c.step(name, k) != 0 && has[name].Value(k) != c.After[name].Value(k)
	})
}

func (c Change) undone(has PodResources) bool {
	return !c.any(func(name string, k resources.Kind) bool {
		return c.step(name, k) != 0 && has[name].Value(k) != c.Before[name].Value(k)
	})
}

// partlyApplied reports whether another component altered the change: a pod misses a part of it and
// needs more in the same direction. A pod with a newer recommendation does not qualify.
func (c Change) partlyApplied(next Change) bool {
	return c.any(func(name string, k resources.Kind) bool {
		step, again := c.step(name, k), next.step(name, k)
		missing := c.After[name].Value(k) - next.Before[name].Value(k)
		return step > 0 && missing > 0 && again > 0 || step < 0 && missing < 0 && again < 0
	})
}

// atTarget reports whether a pod, created with another recommendation, needs no further change.
func (c Change) atTarget(next Change) bool {
	return !c.any(func(name string, k resources.Kind) bool {
		return c.step(name, k) != 0 && (!next.After[name].Has(k) || next.step(name, k) != 0)
	})
}

func doubled(d time.Duration, n int, limit time.Duration) time.Duration {
	for range n {
		if d >= limit {
			break
		}
		d *= 2
	}
	return min(d, limit)
}
