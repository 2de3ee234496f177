package usage

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// instant returns nanoseconds, and whether the time is valid, so that no window end overflows.
func instant(at time.Time) (int64, bool) {
	const last = 220 * 365 * 24 * 3600 // early November 2189, in seconds since 1970
	return at.UnixNano(), 0 <= at.Unix() && at.Unix() < last
}

// Observe adds one sample of a tracked container. CPU samples must be newer than the last one, and
// memory samples must not be older. Kills do not count here: memory samples from before a kill may
// arrive after it.
func (s *Store) Observe(sample Sample) Reason {
	slot, at, reason := s.validate(sample)
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
		s.recordPeak(c, at, sample.Amount, &w.usage)
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

// Check returns the result of Observe without adding the sample. It ignores the order of samples.
func (s *Store) Check(sample Sample) Reason {
	_, _, reason := s.validate(sample)
	return reason
}

func (s *Store) validate(sample Sample) (slot int32, at int64, reason Reason) {
	slot, known := s.slotCached(sample.Container)
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

func (s *Store) aboveCeiling(sample Sample) bool {
	ceiling := s.Ceiling(sample.Container, sample.Kind)
	return ceiling > 0 && sample.Amount > ceiling
}

// recordPeak makes value the peak of the window if it is higher; peak is the field for its kind. An
// OOM kill may be older than the last sample, and then moves the time of the window back.
func (s *Store) recordPeak(c *container, at int64, value resources.Amount, peak *resources.Amount) {
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
