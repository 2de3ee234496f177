package usage

import (
	"hash/fnv"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// instant returns at as nanoseconds, and whether it is a time that samples can
// have. Within these bounds no window can end beyond what fits.
func instant(at time.Time) (int64, bool) {
	const last = 220 * 365 * 24 * 3600 // early November 2189, in seconds since 1970
	return at.UnixNano(), 0 <= at.Unix() && at.Unix() < last
}

// Observe adds one sample of a tracked container. CPU samples must be newer than the last one, memory samples not
// older. A kill is no sample: memory samples from before it may arrive after it.
func (s *Store) Observe(sample Sample) Reason {
	slot, at, reason := s.check(sample)
	if reason != Accepted {
		return reason
	}
	c := s.containers.At(slot)
	if sample.Kind == resources.Memory {
		w := &c.window
		if at < min(w.last, w.used) {
			return NotNewer
		}
		last := w.last
		s.enter(c, at, sample.Amount, &w.usage)
		if w.used < last {
			w.last = max(w.last, last) // a kill was the latest
		}
		w.used = at
		return Accepted
	}
	if at <= c.lastCPU {
		return NotNewer
	}
	c.lastCPU, s.newest = at, max(s.newest, at)
	s.series.At(c.series).version++
	s.series.At(c.series).profile.AddCPU(float64(sample.Amount)/1000, sample.At)
	return Accepted
}

// Check returns the result of Observe for a sample without adding it. It does not check the order of samples.
func (s *Store) Check(sample Sample) Reason {
	_, _, reason := s.check(sample)
	return reason
}

// check validates a sample regardless of the order of samples.
func (s *Store) check(sample Sample) (slot int32, at int64, reason Reason) {
	slot, known := s.observed(sample.Container)
	at, inRange := instant(sample.At)
	switch {
	case !known:
		return slot, at, UnknownContainer
	case sample.Amount < 0:
		return slot, at, NegativeAmount
	case !inRange:
		return slot, at, OutOfRange
	case s.aboveCeiling(sample):
		return slot, at, AboveCeiling
	}
	return slot, at, Accepted
}

// aboveCeiling reports whether a sample cannot be true.
func (s *Store) aboveCeiling(sample Sample) bool {
	most := s.Ceiling(sample.Container, sample.Kind)
	return most > 0 && sample.Amount > most
}

// enter lets value, a use or a need of memory, become the peak of the window if it is higher. peak is where the window
// keeps peaks of that sort. An OOM may be older than the last sample and then sets the clock back.
func (s *Store) enter(c *container, at int64, value resources.Amount, peak *resources.Amount) {
	h, w := s.series.At(c.series), &c.window
	if w.last == none {
		w.end = at
	}
	w.last = at
	if at >= w.end {
		interval := int64(s.rules(h).Interval)
		w.end += (at-w.end)/interval*interval + interval
		w.forgetPeak()
	}
	replaced := w.peak()
	if value <= replaced {
		return
	}
	h.version++
	end := time.Unix(0, w.end)
	if replaced != none {
		h.profile.RemovePeak(float64(replaced), end)
	}
	h.profile.AddPeak(float64(value), end)
	*peak = value
}

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

// note keeps the ID of a kill that was taken, so that it is known by that once times do not count any more.
func (k *kill) note(id string) {
	if !k.knows(id) {
		copy(k.recent[1:], k.recent[:])
		k.recent[0] = hashOf(id)
	}
}

// hashes returns those of the remembered IDs, none while times count: then they are not all.
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

// next returns the steps after another kill, of a container that could have had an amount. Only one that had what it
// was taken to need needs more: a container that is kept small is killed again and again, and needs no more for that.
// An interval without kills begins anew.
func (k *kill) next(at int64, had resources.Amount, rules Rules) int {
	switch {
	case k == nil || at-k.at > int64(rules.Interval):
		return 0
	case k.need != none && had >= k.need:
		return min(k.steps+1, mostSteps)
	}
	return k.steps
}

// ObserveOOM takes the report that a tracked container was killed for want of memory: from then on it is taken to need
// more than the larger of its request and its use; where no use was seen, also more than its limit (Rules.needed). That
// counts at once as the peak of the window it belongs to, and so in the histogram. A kill with an ID counts once.
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
