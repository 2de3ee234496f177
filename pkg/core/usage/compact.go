package usage

import "slices"

// compact gives back the memory of what is gone, where that is much: a map and a
// slice that were once large stay so, and a map grows when its keys change often.
func (s *Store) compact() {
	if s.forgotten > leastSpare && s.forgotten > len(s.containers)/spareShare {
		s.compactContainers()
	}
	end := len(s.series)
	for end > 0 && !s.series[end-1].live {
		end--
		s.floor = max(s.floor, s.series[end].version)
	}
	if spare := len(s.series) - end; spare > leastSpare && spare > len(s.series)/spareShare {
		s.series = slices.Clone(s.series[:end])
		s.freeSeries = slices.DeleteFunc(s.freeSeries, func(i Series) bool { return int(i) >= end })
		s.bySeriesKey = make(map[SeriesKey]Series, len(s.bySeriesKey))
		for i := range s.series {
			if s.series[i].live {
				s.bySeriesKey[s.series[i].key] = Series(i)
			}
		}
	}
	if spare := cap(s.series) - len(s.series); spare > leastSpare && spare > len(s.series)/spareShare {
		s.series = slices.Clone(s.series)
	}
	if spare := cap(s.containers) - len(s.containers); spare > leastSpare && spare > len(s.containers)/spareShare {
		s.containers = slices.Clone(s.containers)
	}
	// Low slots are used first, so that the high ones can go some day.
	slices.SortFunc(s.freeSeries, func(a, b Series) int { return int(b - a) })
}

// More than both is much.
const (
	leastSpare = 64
	spareShare = 16 // of all slots
)

// roomy returns a list with room for one more, twice as large where it has to
// grow: by the usual quarter a cluster's containers would be copied five times
// while they come in. What is too much goes at the next compaction.
func roomy[T any](list []T) []T {
	if len(list) < cap(list) {
		return list
	}
	return slices.Grow(list, max(len(list), leastSpare))
}

// compactContainers moves the containers, in the order of their series, into new
// slots.
func (s *Store) compactContainers() {
	former := s.containers
	s.containers, s.freeContainers, s.forgotten = make([]container, 0, s.tracked), nil, 0
	s.pods, s.tracked = newPodIndex(), 0
	for i := range s.series {
		first := s.series[i].first
		s.series[i].first = none
		for at := first; s.series[i].live && at != none; at = former[at].next {
			slot := int32(len(s.containers))
			s.containers = append(s.containers, former[at])
			namespace := s.series[i].key.Namespace
			s.join(slot, s.pods.recall(namespace, former[at].pod), namespace)
			s.link(slot, Series(i))
		}
	}
}
