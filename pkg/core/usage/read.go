package usage

import (
	"iter"
	"time"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/profile"
)

// Profile merges series into dst, which must have the shape of the store.
func (s *Store) Profile(dst *profile.Profile, series ...Series) {
	for _, i := range series {
		s.series[i].profile.MergeInto(dst)
	}
}

// RemovePeaks takes out of dst, into which series were merged, the peaks of
// windows that are open at now. A checkpoint is written without them, so that a
// program that restarts within a window does not count it twice.
func (s *Store) RemovePeaks(dst *profile.Profile, now time.Time, series ...Series) {
	for _, i := range series {
		for slot := s.series[i].first; slot != none; slot = s.containers[slot].next {
			w := &s.containers[slot].window
			if end := time.Unix(0, w.end); w.peak() != none && now.Before(end) {
				dst.RemovePeak(float64(w.peak()), end)
			}
		}
	}
}

// Peak returns the peak of a container's memory window in bytes and the end of
// the window, or false if it has none.
func (s *Store) Peak(c ContainerKey) (peak amount.Amount, end time.Time, ok bool) {
	slot, known := s.byContainerKey[c]
	if !known || s.containers[slot].window.peak() == none {
		return 0, time.Time{}, false
	}
	w := &s.containers[slot].window
	return w.peak(), time.Unix(0, w.end).UTC(), true
}

// Find returns the series with a key, if there is one.
func (s *Store) Find(key SeriesKey) (Series, bool) {
	series, ok := s.bySeriesKey[key]
	return series, ok
}

// Key returns the key of a series.
func (s *Store) Key(series Series) SeriesKey { return s.series[series].key }

// Tracked returns the series that a container feeds, if it is tracked.
func (s *Store) Tracked(c ContainerKey) (Series, bool) {
	slot, known := s.byContainerKey[c]
	if !known {
		return none, false
	}
	return s.containers[slot].series, true
}

// All yields every series and its key in the order of handles.
func (s *Store) All() iter.Seq2[Series, SeriesKey] {
	return func(yield func(Series, SeriesKey) bool) {
		for i := range s.series {
			if h := &s.series[i]; h.live && !yield(Series(i), h.key) {
				return
			}
		}
	}
}

// Len returns the number of series.
func (s *Store) Len() int { return len(s.bySeriesKey) }

// Containers returns the number of tracked containers.
func (s *Store) Containers() int { return len(s.byContainerKey) }
