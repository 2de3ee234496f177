package usage

import (
	"hash/fnv"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// RememberedKills is how many kills of a container are recognized again. A pod status shows two.
const RememberedKills = 4

// maxSteps limits the counted steps, see Rules.memoryNeed.
const maxSteps = 4

// kill is the record of the kills of a container that had an ID.
type kill struct {
	at     int64                   // time of the latest kill
	need   resources.Amount        // assumed demand in bytes since the last kill, or none
	steps  int                     // kills despite having the assumed demand
	recent [RememberedKills]uint64 // hashes of the IDs, newest first, 0 is none or unknown
	byTime bool                    // some IDs are unknown, so kills up to at are duplicates
}

// hashOf returns the hash of an ID, never 0.
func hashOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // a hash never fails
	return max(h.Sum64(), 1)
}

// isDuplicate reports whether a kill was recorded. It compares IDs, because a node's clock may be
// set back, or times after a restart with unknown IDs, until the next new kill.
func (k *kill) isDuplicate(at int64, id string) bool {
	return k != nil && (k.hasID(id) || k.byTime && at <= k.at)
}

func (k *kill) hasID(id string) bool { return slices.Contains(k.recent[:], hashOf(id)) }

func (k *kill) record(at int64, id string) {
	k.at, k.byTime = max(k.at, at), false
	k.addID(id)
}

func (k *kill) addID(id string) {
	if !k.hasID(id) {
		copy(k.recent[1:], k.recent[:])
		k.recent[0] = hashOf(id)
	}
}

// hashes returns the known IDs, or none while times count, because the list is incomplete then.
func (k *kill) hashes() []uint64 {
	if k.byTime {
		return nil
	}
	known := slices.Index(k.recent[:], 0)
	if known < 0 {
		known = len(k.recent)
	}
	return slices.Clone(k.recent[:known])
}

// nextSteps returns the steps after another kill, 0 after an interval without. They grow only if
// the container had its assumed demand: one that is kept small is killed without a higher demand.
func (k *kill) nextSteps(at int64, had resources.Amount, rules Rules) int {
	switch {
	case k == nil || at-k.at > int64(rules.Interval):
		return 0
	case k.need != none && had >= k.need:
		return min(k.steps+1, maxSteps)
	}
	return k.steps
}

// ObserveOOM records an OOM kill of a tracked container, once per ID. Its assumed demand is above
// the larger of request and usage, and without observed usage also above its limit, see
// Rules.memoryNeed. It counts immediately as the peak of its window and in the histogram. The target
// of recipe vpa is a quantile of that histogram, so one kill among many pods may not raise it.
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
	case oom.ID != "" && c.kill.isDuplicate(at, oom.ID):
		c.kill.addID(oom.ID)
		return Duplicate
	case c.window.last != none && at < c.window.last-int64(rules.Interval):
		return TooOld
	case !oom.Discovered.IsZero() && oom.Discovered.Sub(oom.At) > rules.Interval:
		return TooOld
	}
	had := max(oom.Memory, c.window.usage)
	if c.window.usage <= 0 {
		had = max(had, oom.Limit)
	}
	need := rules.memoryNeed(had, 0)
	if oom.ID != "" {
		steps := c.kill.nextSteps(at, max(oom.Memory, oom.Limit), rules)
		need = rules.memoryNeed(had, steps)
		if c.kill == nil {
			c.kill = &kill{}
		}
		c.kill.need, c.kill.steps = need, steps
		c.kill.record(at, oom.ID)
		h.version++
	}
	s.recordPeak(c, at, need, &c.window.oom)
	return Accepted
}

// ReviseOOM raises the demand after a recorded kill to the memory usage observed since then.
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
	if oom.ID != "" && c.kill != nil && c.kill.hasID(oom.ID) {
		steps = c.kill.steps
	}
	need := s.rules(s.series.At(c.series)).memoryNeed(c.window.usage, steps)
	if c.kill != nil {
		c.kill.need = max(c.kill.need, need)
	}
	s.recordPeak(c, at, need, &c.window.oom)
}

// memoryNeed returns the demand of a container that was killed with an amount of memory. Each step
// applies the ratio once more, until the demand is twice the amount.
func (r Rules) memoryNeed(had resources.Amount, steps int) resources.Amount {
	need := max(had.Add(r.OOMMinBump), had.Scale(r.OOMRatio))
	for ; steps > 0 && need < had.Add(had); steps-- {
		need = max(need, need.Scale(r.OOMRatio))
	}
	return need
}
