package usage

import "time"

// Fold adds a series that no container feeds to the one with another key and
// gives its handle up, or the other way round where the other does not exist yet:
// then the series only gets another name. It returns the one that is left, and
// false, having done nothing, if containers feed the series or have that key.
func (s *Store) Fold(from Series, key SeriesKey) (Series, bool) {
	h := s.series.At(from)
	if h.first != none || h.key == key {
		return from, false
	}
	into, found := s.names.Find(key.Namespace, key.name())
	if !found {
		s.names.Remove(h.key.Namespace, h.key.name())
		h.key, h.rules, h.version = key, nil, h.version+1
		s.names.Put(key.Namespace, key.name(), from)
		return from, true
	}
	h.mergeInto(s.series.At(into))
	s.remove(from)
	return into, true
}

// Move adds the history of a series to the one with another key, which it creates if needed, and
// returns that. The containers that feed the series feed it from then on without a history.
func (s *Store) Move(from Series, key SeriesKey) Series {
	created := s.series.At(from).created
	into, found := s.names.Find(key.Namespace, key.name())
	if !found {
		into = s.addSeries(key, created)
	}
	h := s.series.At(from)
	h.mergeInto(s.series.At(into))
	h.empty(s, created)
	return into
}

// mergeInto adds a history to another one.
func (h *history) mergeInto(to *history) {
	h.profile.MergeInto(&to.profile)
	to.version++
	if older := h.created.Before(to.created); older != to.profile.Empty() {
		to.created = h.created // without CPU samples the later one, from which on it expires
	}
}

// empty forgets a history that containers feed. Their windows begin without a peak.
func (h *history) empty(s *Store, created time.Time) {
	h.profile, h.created, h.version = NewProfile(s.config.Shape), created, h.version+1
	for slot := h.first; slot != none; slot = s.containers.At(slot).next {
		s.containers.At(slot).window.forgetPeak()
	}
}

// Drop gives up a series and its handle, and reports whether it did: not if
// containers feed it.
func (s *Store) Drop(series Series) bool {
	if s.series.At(series).first != none {
		return false
	}
	s.remove(series)
	return true
}

// remove frees the slot of a series that no container feeds.
func (s *Store) remove(series Series) {
	h := s.series.At(series)
	s.names.Remove(h.key.Namespace, h.key.name())
	*h = history{version: h.version}
	s.freeSeries = append(s.freeSeries, series)
}

// Absorb adds a series of another store, which must have the same shape, to the
// one with the same key here. It returns that, which it creates if needed, and
// only reads the other store. Where a container is tracked in both and its two
// windows overlap, they become one, with the higher peak.
func (s *Store) Absorb(other *Store, from Series, now time.Time) Series {
	theirs := other.series.At(from)
	into, found := s.names.Find(theirs.key.Namespace, theirs.key.name())
	if !found {
		into = s.addSeries(theirs.key, now)
	}
	h := s.series.At(into)
	theirs.profile.MergeInto(&h.profile)
	h.version++
	s.newest = max(s.newest, other.newest)
	for at := theirs.first; at != none; at = other.containers.At(at).next {
		c := other.containers.At(at)
		if slot, known := s.slot(other.key(c)); known && s.containers.At(slot).series == into {
			s.containers.At(slot).lastCPU = max(s.containers.At(slot).lastCPU, c.lastCPU)
			s.merge(h, &s.containers.At(slot).window, c.window)
		}
	}
	return into
}

// merge makes one window of w and o, the peaks of which are both in h.
func (s *Store) merge(h *history, w *window, o window) {
	interval := int64(s.rules(h).Interval)
	switch {
	case o.last == none || w.last != none && o.end <= max(w.last, w.end-interval):
		return // o is over: its peak is final
	case w.last == none || w.end <= o.end-interval:
		*w = o // w is over, if there was one
		return
	}
	low, high := *w, o
	if low.peak() > high.peak() {
		low, high = high, low
	}
	if low.peak() != none {
		h.profile.RemovePeak(float64(low.peak()), time.Unix(0, low.end))
	}
	*w = window{
		last: max(w.last, o.last), used: max(w.used, o.used), end: high.end,
		usage: max(w.usage, o.usage), oom: max(w.oom, o.oom),
	}
}
