package usage

import (
	"hash/fnv"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// kill is what is remembered of the kills of a container that had an ID.
type kill struct {
	at     int64                   // latest
	need   resources.Amount        // bytes that the container was taken to need since the last one; none = not known any more
	steps  int                     // how often it was killed although it had what it was taken to need
	recent [RememberedKills]uint64 // hashes of the IDs, the last one first; 0 = none, or not known any more
	timed  bool                    // not all IDs are known, so one that is not later was taken
}

// RememberedKills is how many kills of a container are recognised when they are
// reported again. The status of a pod shows two.
const RememberedKills = 4

// mostSteps bounds the steps that are counted; see Rules.needed.
const mostSteps = 4

// hashOf returns what is kept of an ID; never 0.
func hashOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // a hash never fails
	return max(h.Sum64(), 1)
}

// covers reports whether a kill was taken already. Its ID says so, and not its time: the
// clock of a node may have been set back. Only where IDs are not known, after a restart,
// a kill that is not later than the last one counts as taken, until there is a new one.
func (k *kill) covers(at int64, id string) bool {
	return k != nil && (k.knows(id) || k.timed && at <= k.at)
}

func (k *kill) knows(id string) bool { return slices.Contains(k.recent[:], hashOf(id)) }

// remember notes that a new kill was taken.
func (k *kill) remember(at int64, id string) {
	k.at, k.timed = max(k.at, at), false
	k.note(id)
}

// note keeps the ID of a kill that was taken, so that it is known by that once times do
// not count any more.
func (k *kill) note(id string) {
	if !k.knows(id) {
		copy(k.recent[1:], k.recent[:])
		k.recent[0] = hashOf(id)
	}
}

// hashes returns those of the remembered IDs, none while times count: then they are not
// all.
func (k *kill) hashes() []uint64 {
	if k.timed {
		return nil
	}
	known := slices.Index(k.recent[:], 0)
	if known < 0 {
		known = len(k.recent)
	}
	return slices.Clone(k.recent[:known])
}

// next returns the steps after another kill, of a container that could have had
// an amount. Only one that had what it was taken to need needs more: a
// container that is kept small is killed again and again, and needs no more for
// that. An interval without kills begins anew.
func (k *kill) next(at int64, had resources.Amount, rules Rules) int {
	switch {
	case k == nil || at-k.at > int64(rules.Interval):
		return 0
	case k.need != none && had >= k.need:
		return min(k.steps+1, mostSteps)
	}
	return k.steps
}

// ObserveOOM takes the report that a tracked container was killed for want of
// memory: from then on it is taken to need more than the larger of its request and its
// use; where no use was seen, also more than its limit (Rules.needed). That counts at once as the peak of the
// window it belongs to, and so in the histogram. A kill with an ID counts once.
func (s *Store) ObserveOOM(oom OOM) Reason {
	slot, known := s.slot(oom.Container)
	at, inRange := instant(oom.At)
	switch {
	case !known:
		return UnknownContainer
	case oom.Memory < 0 || oom.Limit < 0:
		return NegativeAmount
	case !inRange:
		return OutOfRange
	}
	c := s.containers.At(slot)
	h := s.series.At(c.series)
	rules := s.rules(h)
	switch {
	case oom.ID != "" && c.kill.covers(at, oom.ID):
		c.kill.note(oom.ID)
		return Duplicate
	case c.window.last != none && at < c.window.last-int64(rules.Interval):
		return TooOld
	case !oom.Found.IsZero() && oom.Found.Sub(oom.At) > rules.Interval:
		return TooOld
	}
	had := max(oom.Memory, c.window.usage)
	if c.window.usage <= 0 {
		had = max(had, oom.Limit)
	}
	need := rules.needed(had, 0)
	if oom.ID != "" {
		steps := c.kill.next(at, max(oom.Memory, oom.Limit), rules)
		need = rules.needed(had, steps)
		if c.kill == nil {
			c.kill = &kill{}
		}
		c.kill.need, c.kill.steps = need, steps
		c.kill.remember(at, oom.ID)
		h.version++
	}
	s.enter(c, at, need, &c.window.oom)
	return Accepted
}

// ReviseOOM raises the need after a kill that was taken to the memory use that was observed
// since, as if that use had been known when the kill was taken.
func (s *Store) ReviseOOM(oom OOM) {
	slot, known := s.slot(oom.Container)
	at, inRange := instant(oom.At)
	if !known || !inRange {
		return
	}
	c, steps := s.containers.At(slot), 0
	if c.window.usage <= oom.Memory {
		return
	}
	if oom.ID != "" && c.kill != nil && c.kill.knows(oom.ID) {
		steps = c.kill.steps
	}
	need := s.rules(s.series.At(c.series)).needed(c.window.usage, steps)
	if c.kill != nil {
		c.kill.need = max(c.kill.need, need)
	}
	s.enter(c, at, need, &c.window.oom)
}

// needed returns the memory that a container needs which was killed and had so much.
// For each step the ratio applies once more, until that is twice of that.
func (r Rules) needed(had resources.Amount, steps int) resources.Amount {
	need := max(had.Add(r.OOMMinBump), had.Scale(r.OOMRatio))
	for ; steps > 0 && need < had.Add(had); steps-- {
		need = max(need, need.Scale(r.OOMRatio))
	}
	return need
}
