package usage

import (
	"iter"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Rekey gives a series without containers another key, or merges it into the series with that key
// and frees from. It returns the resulting series, or false without any change if containers feed
// the series or it already has the key.
func (s *Store) Rekey(from Series, key SeriesKey) (Series, bool) {
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

// MoveHistory adds the history of a series to the series with another key, created if needed, and
// returns that. The containers of the first one continue to feed it, from an empty history.
func (s *Store) MoveHistory(from Series, key SeriesKey) Series {
	created := s.series.At(from).created
	into, found := s.names.Find(key.Namespace, key.name())
	if !found {
		into = s.addSeries(key, created)
	}
	h := s.series.At(from)
	h.mergeInto(s.series.At(into))
	h.reset(s, created)
	return into
}

func (h *history) mergeInto(to *history) {
	h.profile.MergeInto(&to.profile)
	to.version++
	if older := h.created.Before(to.created); older != to.profile.Empty() {
		to.created = h.created // without CPU samples, the later time determines expiry
	}
}

// reset clears a history that containers feed. Their open windows lose their peaks.
func (h *history) reset(s *Store, created time.Time) {
	h.profile, h.created, h.version = NewProfile(s.config.Shape), created, h.version+1
	for slot := h.first; slot != none; slot = s.containers.At(slot).next {
		s.containers.At(slot).window.forgetPeak()
	}
}

// DropSeries frees a series and its handle. It returns false if containers feed the series.
func (s *Store) DropSeries(series Series) bool {
	if s.series.At(series).first != none {
		return false
	}
	s.remove(series)
	return true
}

func (s *Store) remove(series Series) {
	h := s.series.At(series)
	s.names.Remove(h.key.Namespace, h.key.name())
	*h = history{version: h.version}
	s.freeSeries = append(s.freeSeries, series)
}

// Import merges a series of other, which is only read and has the same shape, into the series with
// its key, created if needed. Overlapping windows of a container become one with the higher peak.
func (s *Store) Import(other *Store, from Series, now time.Time) Series {
	source := other.series.At(from)
	into, found := s.names.Find(source.key.Namespace, source.key.name())
	if !found {
		into = s.addSeries(source.key, now)
	}
	h := s.series.At(into)
	source.profile.MergeInto(&h.profile)
	h.version++
	s.newest = max(s.newest, other.newest)
	for at := source.first; at != none; at = other.containers.At(at).next {
		c := other.containers.At(at)
		if slot, known := s.slot(other.key(c)); known && s.containers.At(slot).series == into {
			s.containers.At(slot).lastCPU = max(s.containers.At(slot).lastCPU, c.lastCPU)
			s.mergeWindows(h, &s.containers.At(slot).window, c.window)
		}
	}
	return into
}

// mergeWindows merges o into w. The peaks of both are already in h.
func (s *Store) mergeWindows(h *history, w *window, o window) {
	interval := int64(s.rules(h).Interval)
	switch {
	case o.last == none || w.last != none && o.end <= max(w.last, w.end-interval):
		return // o has ended, so its peak is final
	case w.last == none || w.end <= o.end-interval:
		*w = o // w has ended or was never open
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

// window is the interval in which the highest memory usage of a container counts as one peak, dated
// to its end, up to a whole interval ahead. Times are nanoseconds since 1970.
type window struct {
	last  int64 // last memory sample or kill, none without a window
	used  int64 // last memory sample, or none
	end   int64
	usage resources.Amount // maximum usage, or none
	oom   resources.Amount // maximum demand after an OOM kill, or none
}

func newWindow() window { return window{last: none, used: none, usage: none, oom: none} }

func (w *window) peak() resources.Amount { return max(w.usage, w.oom) }

func (w *window) forgetPeak() { w.usage, w.oom = none, none }

// Window is the stored memory window of one container.
type Window struct {
	End   time.Time        // zero if only a kill is stored
	Usage resources.Amount // bytes: maximum usage, negative for none
	OOM   resources.Amount // bytes: maximum demand after an OOM kill, negative for none
	Kill  time.Time        // latest kill with an ID, zero for none within an interval
	Kills []uint64         // hashes of the last kill IDs, newest first; empty is unknown
}

// Peak returns the peak of the window in bytes, or a negative value.
func (w Window) Peak() resources.Amount { return max(w.Usage, w.OOM) }

// Windows yields, unordered, the open windows with a peak and the last kills, to be stored.
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

// RestoreWindow restores the stored window of a tracked container, and adds its peak to the series.
// Kills in w.Kills then count as duplicates, or all up to w.Kill if that is empty. It reports
// whether the peak was restored or, if w has none, the kill. The peak is ignored if the container
// has a window already or w.End is out of range.
func (s *Store) RestoreWindow(c ContainerKey, w Window) bool {
	slot, known := s.slot(c)
	if !known {
		return false
	}
	restored := s.restoreKill(slot, w)
	end, inRange := instant(w.End)
	peak := max(w.Usage, w.OOM)
	if peak < 0 {
		return restored
	}
	if !inRange || s.containers.At(slot).window.last != none {
		return false
	}
	h := s.series.At(s.containers.At(slot).series)
	s.containers.At(slot).window = window{
		last:  0, // unknown, because the window length may have changed
		used:  0,
		end:   end,
		usage: max(w.Usage, none),
		oom:   max(w.OOM, none),
	}
	h.version++
	h.profile.AddPeak(float64(peak), w.End)
	return true
}

func (s *Store) restoreKill(slot int32, w Window) bool {
	at, inRange := instant(w.Kill)
	c := s.containers.At(slot)
	if !inRange || c.kill != nil && c.kill.at >= at {
		return false
	}
	c.kill = &kill{at: at, need: max(w.OOM, none)}
	copy(c.kill.recent[:], w.Kills)
	c.kill.byTime = c.kill.recent[0] == 0
	return true
}

// RemovePeaks removes the peaks of windows open at now from dst, a merge of series, for
// checkpoints: a program that restarts within a window must not count them twice.
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

// Peak returns the peak of a container's memory window in bytes and its end, or false if none.
func (s *Store) Peak(c ContainerKey) (peak resources.Amount, end time.Time, ok bool) {
	slot, known := s.slot(c)
	if !known || s.containers.At(slot).window.peak() == none {
		return 0, time.Time{}, false
	}
	w := &s.containers.At(slot).window
	return w.peak(), time.Unix(0, w.end).UTC(), true
}
