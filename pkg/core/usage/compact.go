package usage

import "slices"

// compact gives back the memory of what is gone, where that is much: a map and a
// slice that were once large stay so, and a map grows when its keys change often.
func (s *Store) compact() {
	if s.forgotten > leastSpare && s.forgotten > int(s.containers.used)/spareShare {
		s.compactContainers()
	}
	end := s.series.used
	for end > 0 && !s.series.at(end-1).live {
		end--
		s.floor = max(s.floor, s.series.at(end).version)
	}
	if spare := s.series.used - end; spare > leastSpare && spare > s.series.used/spareShare {
		s.series.cut(end)
		s.freeSeries = slices.DeleteFunc(s.freeSeries, func(i Series) bool { return i >= end })
		s.bySeriesKey = make(map[SeriesKey]Series, len(s.bySeriesKey))
		for series, key := range s.All() {
			s.bySeriesKey[key] = series
		}
	}
	// Low slots are used first, so that the high ones can go some day.
	slices.SortFunc(s.freeSeries, func(a, b Series) int { return int(b - a) })
}

// More than both is much.
const (
	leastSpare = 64
	spareShare = 16 // of all slots
)

// compactContainers moves the containers, in the order of their series, into new
// slots.
func (s *Store) compactContainers() {
	former := s.containers
	s.containers, s.freeContainers, s.forgotten = slots[int32, container]{}, nil, 0
	s.pods, s.tracked = newPodIndex(), 0
	for series := range s.series.used {
		h := s.series.at(series)
		first := h.first
		h.first = none
		for at := first; h.live && at != none; at = former.at(at).next {
			slot := s.containers.add()
			*s.containers.at(slot) = *former.at(at)
			s.join(slot, s.pods.recall(h.key.Namespace, former.at(at).pod), h.key.Namespace)
			s.link(slot, series)
		}
	}
}
