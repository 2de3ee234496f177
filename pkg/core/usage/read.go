package usage

import (
	"iter"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Profile merges series into dst, which must have the shape of the store.
func (s *Store) Profile(dst *Profile, series ...Series) {
	for _, i := range series {
		s.series.At(i).profile.MergeInto(dst)
	}
}

// ProfileOf returns the profile of one series, which is what merging that alone comes to. It is
// only to be read, and only until the store changes.
func (s *Store) ProfileOf(series Series) *Profile { return &s.series.At(series).profile }

// Span returns when the oldest and the newest CPU sample of a series were taken,
// the zero time if unknown, and how many there are.
func (s *Store) Span(series Series) (first, last time.Time, samples int64) {
	p := &s.series.At(series).profile
	return p.First(), p.Last(), p.Samples()
}

// Created returns when a series began in this store, whatever it absorbed since, so
// from when on its samples may be our own. Of series that were folded together it is
// the first of their times, but the last while there is no CPU sample: then it also
// says when the series is so old that it expires.
func (s *Store) Created(series Series) time.Time { return s.series.At(series).created }

// Version returns a number that grows whenever the history of a series changes. A
// handle that is used again goes on from there.
func (s *Store) Version(series Series) uint64 { return s.series.At(series).version }

// Find returns the series with a key, if there is one.
func (s *Store) Find(key SeriesKey) (Series, bool) {
	return s.names.Find(key.Namespace, key.name())
}

// Key returns the key of a series.
func (s *Store) Key(series Series) SeriesKey { return s.series.At(series).key }

// Tracked returns the series that a container feeds, if it is tracked.
func (s *Store) Tracked(c ContainerKey) (Series, bool) {
	slot, known := s.slot(c)
	if !known {
		return none, false
	}
	return s.containers.At(slot).series, true
}

// Ceiling returns the most that a container can use of a kind, 0 if that is not known.
func (s *Store) Ceiling(c ContainerKey, k resources.Kind) resources.Amount {
	if s.config.Nodes == nil {
		return 0
	}
	return s.config.Nodes.Ceiling(c, k)
}

// Used returns the highest memory use in the open window of a container in bytes, 0 if none is
// known.
func (s *Store) Used(c ContainerKey) resources.Amount {
	slot, known := s.slot(c)
	if !known {
		return 0
	}
	return max(s.containers.At(slot).window.usage, 0)
}

// All yields every series and its key in the order of handles.
func (s *Store) All() iter.Seq2[Series, SeriesKey] {
	return func(yield func(Series, SeriesKey) bool) {
		for series := range s.series.Len() {
			if h := s.series.At(series); h.live && !yield(series, h.key) {
				return
			}
		}
	}
}

// Len returns the number of series.
func (s *Store) Len() int { return int(s.series.Len()) - len(s.freeSeries) }

// Containers returns the number of tracked containers.
func (s *Store) Containers() int { return s.tracked }
