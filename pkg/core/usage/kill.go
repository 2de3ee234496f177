package usage

import "loadline.dev/loadline/pkg/core/amount"

// kill is the last kill of a container that could be told from others.
type kill struct {
	at    int64
	id    string        // empty: not known any more, after a restart
	need  amount.Amount // bytes that the container was taken to need since; none = not known any more
	steps int           // how often it was killed although it had what it was taken to need
}

// mostSteps bounds the steps that are counted; see Rules.needed.
const mostSteps = 4

// covers tells whether a kill was taken already, or is older than the last one.
func (k *kill) covers(at int64, id string) bool {
	return k != nil && (at < k.at || id == k.id || k.id == "" && at == k.at)
}

// next returns the steps after another kill, of a container that could have had
// an amount. Only one that had what it was taken to need tells something new: a
// container that is kept small is killed again and again, and needs no more for
// that. An interval without kills begins anew.
func (k *kill) next(at int64, had amount.Amount, rules Rules) int {
	switch {
	case k == nil || at-k.at > int64(rules.Interval):
		return 0
	case k.need != none && had >= k.need:
		return min(k.steps+1, mostSteps)
	}
	return k.steps
}

// ObserveOOM takes the report that a tracked container was killed for want of
// memory: from then on it is taken to need more than it used or, if that is
// unknown, more than it could have. A kill with an ID counts once.
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
	c := &s.containers[slot]
	h := &s.series[c.series]
	rules := s.rules(h)
	switch {
	case oom.ID != "" && c.kill.covers(at, oom.ID):
		return Duplicate
	case c.window.last != none && at < c.window.last-int64(rules.Interval):
		return TooOld
	case !oom.Found.IsZero() && oom.Found.Sub(oom.At) > rules.Interval:
		return TooOld
	}
	used := max(oom.Memory, c.window.usage)
	if c.window.usage <= 0 {
		used = max(used, oom.Limit)
	}
	need := rules.needed(used, 0)
	if oom.ID != "" {
		steps := c.kill.next(at, max(oom.Memory, oom.Limit), rules)
		need = rules.needed(used, steps)
		c.kill = &kill{at: at, id: oom.ID, need: need, steps: steps}
		h.version++
	}
	s.enter(c, at, need, &c.window.oom)
	return Accepted
}
