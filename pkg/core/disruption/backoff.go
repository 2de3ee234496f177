package disruption

import (
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Sizes are the requests of a pod, by container, and the memory limits that do not follow
// them, by container and ofLimit. It is never changed once it is in a ChangeRecord.
type Sizes map[string]resources.List

// ofLimit follows the name of a container, in which there is no blank.
const ofLimit = " limit"

// Change is one change of a pod.
type Change struct {
	Before, After Sizes
}

// Forget takes a kind out of a change, as if it were not recommended.
func (c Change) Forget(k resources.Kind) {
	for name, after := range c.After {
		c.After[name] = after.Without(k)
	}
}

// ChangeRecord is what is remembered of the changes of one workload. The zero value remembers nothing.
type ChangeRecord struct {
	Last   Change
	At     time.Time // of the last change
	Newest time.Time // when the newest pod that there was then had been created
	Judged bool      // what came of it is known

	Backoff
	Reversals int // changes in a row that undid the one before
}

// Backoff is what is kept of a ChangeRecord where it outlives the process that holds it. The zero value is none.
type Backoff struct {
	Fruitless int       // changes in a row of which new pods showed nothing, or only a part
	Until     time.Time // no pod is disrupted before
}

// Resumed returns the record of a workload on which an earlier process has left a pause. It changes nothing once a
// change is remembered. A pause that ends later than any of ours, even by a clock that is ahead of this one, is not
// ours; one that is over for so long that a ChangeRecord would be forgotten counts no more.
func (r ChangeRecord) Resumed(p Backoff, now time.Time) ChangeRecord {
	ours := !p.Until.After(now.Add(longBackOff+skew)) && now.Sub(p.Until) <= recordAge
	if r.At.IsZero() && p.Until.After(r.Until) && ours {
		r.Backoff = p
		r.Fruitless = min(p.Fruitless, mostResumed)
	}
	return r
}

// mostResumed is a count for which the back-off is the longest for long. Somebody
// may write a larger one, which would overflow.
const mostResumed = 100

// The back-off after a change without effect, doubled with each further one.
const (
	firstBackOff = 5 * time.Minute
	longBackOff  = 12 * time.Hour
	recordAge    = 24 * time.Hour // how long a ChangeRecord is kept after its last change
	skew         = time.Hour      // by how much the clocks of two processes may differ
)

// Expired reports whether the record can be forgotten at now.
func (r ChangeRecord) Expired(now time.Time) bool {
	return now.Sub(r.At) > recordAge && now.After(r.Until)
}

// See looks at a pod of the workload at now: when it was created, what its spec asks for, and what it would get by
// another change. A pod that was created after the last change shows whether that had an effect.
func (r ChangeRecord) See(created time.Time, next Change, now time.Time) ChangeRecord {
	if !created.After(r.Newest) || r.At.IsZero() {
		return r
	}
	switch has := next.Before; {
	case r.Last.arrived(has):
		r.Judged, r.Backoff = true, Backoff{}
	case !r.Judged && (r.Last.undone(has) || r.Last.short(next)):
		r.Judged = true
		r.Fruitless++
		r.Until = now.Add(doubled(firstBackOff, r.Fruitless-1, longBackOff))
	case !r.Judged && r.Last.met(next):
		r.Judged = true // else it would look short as soon as more is recommended
	}
	return r
}

// BacksOff reports whether pods of the workload must not be disrupted at now,
// because earlier disruptions had no effect.
func (r ChangeRecord) BacksOff(now time.Time) bool { return now.Before(r.Until) }

// Holds reports whether a change must wait at now because it would undo the last one: it
// goes back to within a tenth of what was before, in no kind further the same way, and is
// smaller in some kind. What only grows never waits. The time doubles with each reversal, up to a day.
func (r ChangeRecord) Holds(c Change, hold time.Duration, now time.Time) bool {
	return r.reversed(c) && c.shrinks() && now.Before(r.At.Add(doubled(hold, r.Reversals, recordAge)))
}

// Changed records a change that was made at now, when the newest pod of the workload had been created at newest.
func (r ChangeRecord) Changed(c Change, newest, now time.Time) ChangeRecord {
	if r.reversed(c) {
		r.Reversals++
	} else if !r.Last.same(c) {
		r.Reversals = 0
	}
	r.Last, r.At, r.Newest, r.Judged = c, now, newest, false
	return r
}

// reversed reports whether a change of requests goes back to where the last one came from.
func (r ChangeRecord) reversed(c Change) bool {
	found := false
	for name, after := range c.After {
		if strings.HasSuffix(name, ofLimit) {
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

// near reports whether two amounts differ by a tenth at most.
func near(a, b resources.Amount) bool { return max(a-b, b-a) <= max(a, b)/10 }

// step is by how much a change moves a container.
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
	return c.any(func(name string, k resources.Kind) bool { return !strings.HasSuffix(name, ofLimit) && holds(name, k) })
}

func (c Change) shrinks() bool {
	return c.anyRequest(func(name string, k resources.Kind) bool { return c.step(name, k) < 0 })
}

// same reports whether two changes of requests go in the same direction everywhere.
func (c Change) same(d Change) bool {
	return !d.anyRequest(func(name string, k resources.Kind) bool {
		a, b := c.step(name, k), d.step(name, k)
		return (a > 0) != (b > 0) || (a < 0) != (b < 0)
	})
}

// arrived reports whether a pod has all that the change was to give.
func (c Change) arrived(has Sizes) bool {
	return !c.any(func(name string, k resources.Kind) bool {
		return c.step(name, k) != 0 && has[name].Value(k) != c.After[name].Value(k)
	})
}

// undone reports whether a pod has nothing of what the change was to give, but what was before.
func (c Change) undone(has Sizes) bool {
	return !c.any(func(name string, k resources.Kind) bool {
		return c.step(name, k) != 0 && has[name].Value(k) != c.Before[name].Value(k)
	})
}

// short reports whether a pod has less of what the change was to give, or more of
// what it was to take, and would be changed again in the same direction: somebody
// cut it on its way. One that got what was recommended a moment later is not short.
func (c Change) short(next Change) bool {
	return c.any(func(name string, k resources.Kind) bool {
		step, again := c.step(name, k), next.step(name, k)
		missing := c.After[name].Value(k) - next.Before[name].Value(k)
		return step > 0 && missing > 0 && again > 0 || step < 0 && missing < 0 && again < 0
	})
}

// met reports whether a pod has all it would get of what the change was about: it came with another recommendation.
func (c Change) met(next Change) bool {
	return !c.any(func(name string, k resources.Kind) bool {
		return c.step(name, k) != 0 && (!next.After[name].Has(k) || next.step(name, k) != 0)
	})
}

// doubled returns first, doubled n times, at most most.
func doubled(first time.Duration, n int, most time.Duration) time.Duration {
	for range n {
		if first >= most {
			break
		}
		first *= 2
	}
	return min(first, most)
}
