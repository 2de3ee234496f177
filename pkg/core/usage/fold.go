package usage

import (
	"iter"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Fold adds a series that no container feeds to the one with another key and gives its handle up, or the other way
// round where the other does not exist yet: then the series only gets another name. It returns the one that is left,
// and false, having done nothing, if containers feed the series or have that key.
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

// Drop gives up a series and its handle, and reports whether it did: not if containers feed it.
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

// Absorb adds a series of another store, which must have the same shape, to the one with the same key here. It returns
// that, which it creates if needed, and only reads the other store. Where a container is tracked in both and its two
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

// window is the time in which a container's highest memory use counts as one peak in its series. Peaks are entered at
// the end of the window, which may be a whole interval ahead. Instants are nanoseconds since 1970.
type window struct {
	last  int64            // last memory sample or kill; none = no window yet
	used  int64            // last memory sample; none = none yet
	end   int64            // end of the window
	usage resources.Amount // highest use seen; none = none yet
	oom   resources.Amount // highest need after an OOM; none = none yet
}

func newWindow() window { return window{last: none, used: none, usage: none, oom: none} }

// peak returns the peak that is in the series, or none.
func (w *window) peak() resources.Amount { return max(w.usage, w.oom) }

func (w *window) forgetPeak() { w.usage, w.oom = none, none }

// Window is the memory window of one container, as it is kept over a restart.
type Window struct {
	End   time.Time        // zero = there is no open window, only a kill to remember
	Usage resources.Amount // bytes: highest use seen; negative = none yet
	OOM   resources.Amount // bytes: highest need after an OOM; negative = none yet
	Kill  time.Time        // of the latest kill that had an ID; zero = none within an interval
	Kills []uint64         // hashes of the IDs of the last such kills, the last one first; empty = not known
}

// Peak returns the peak of the window in bytes, negative if it has none.
func (w Window) Peak() resources.Amount { return max(w.Usage, w.OOM) }

// Windows yields what must be kept over a restart of the containers that feed series: windows that are open at now and
// have a peak, and last kills. The order is not defined.
func (s *Store) Windows(now time.Time, series ...Series) iter.Seq2[ContainerKey, Window] {
	return func(yield func(ContainerKey, Window) bool) {
		for _, i := range series {
			interval := s.rules(s.series.At(i)).Interval
			for slot := s.series.At(i).first; slot != none; slot = s.containers.At(slot).next {
				c, w := s.containers.At(slot), Window{Usage: none, OOM: none}
				if end := time.Unix(0, c.window.end).UTC(); c.window.peak() != none && now.Before(end) {
					w = Window{End: end, Usage: c.window.usage, OOM: c.window.oom}
				}
				if c.kill != nil && now.Sub(time.Unix(0, c.kill.at)) <= interval {
					w.Kill, w.Kills = time.Unix(0, c.kill.at).UTC(), c.kill.hashes()
				}
				if (!w.End.IsZero() || !w.Kill.IsZero()) && !yield(s.key(c), w) {
					return
				}
			}
		}
	}
}

// Resume gives a tracked container back the window that it had before a restart, and its series the peak; from then on
// the kills of w.Kills are duplicates or, where it is empty, those that are not newer than w.Kill. It reports whether
// it took the peak or, if w has none, the kill. The peak is not taken if the container has a window already, or if
// w.End is no time; nothing is if the container is not tracked.
func (s *Store) Resume(c ContainerKey, w Window) bool {
	slot, known := s.slot(c)
	if !known {
		return false
	}
	resumed := s.resumeKill(slot, w)
	end, inRange := instant(w.End)
	peak := max(w.Usage, w.OOM)
	if peak < 0 {
		return resumed
	}
	if !inRange || s.containers.At(slot).window.last != none {
		return false
	}
	h := s.series.At(s.containers.At(slot).series)
	s.containers.At(slot).window = window{
		last:  0, // unknown. When the window began is, too: its length may have been another
		used:  0,
		end:   end,
		usage: max(w.Usage, none),
		oom:   max(w.OOM, none),
	}
	h.version++
	h.profile.AddPeak(float64(peak), w.End)
	return true
}

func (s *Store) resumeKill(slot int32, w Window) bool {
	at, inRange := instant(w.Kill)
	c := s.containers.At(slot)
	if !inRange || c.kill != nil && c.kill.at >= at {
		return false
	}
	c.kill = &kill{at: at, need: max(w.OOM, none)}
	copy(c.kill.recent[:], w.Kills)
	c.kill.timed = c.kill.recent[0] == 0
	return true
}

// RemovePeaks takes out of dst, into which series were merged, the peaks of windows that are open at now. A checkpoint
// is written without them, so that a program that restarts within a window does not count it twice.
func (s *Store) RemovePeaks(dst *Profile, now time.Time, series ...Series) {
	for _, i := range series {
		for slot := s.series.At(i).first; slot != none; slot = s.containers.At(slot).next {
			w := &s.containers.At(slot).window
			if end := time.Unix(0, w.end); w.peak() != none && now.Before(end) {
				dst.RemovePeak(float64(w.peak()), end)
			}
		}
	}
}

// Peak returns the peak of a container's memory window in bytes and the end of the window, or false if it has none.
func (s *Store) Peak(c ContainerKey) (peak resources.Amount, end time.Time, ok bool) {
	slot, known := s.slot(c)
	if !known || s.containers.At(slot).window.peak() == none {
		return 0, time.Time{}, false
	}
	w := &s.containers.At(slot).window
	return w.peak(), time.Unix(0, w.end).UTC(), true
}
