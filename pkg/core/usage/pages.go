package usage

import (
	"slices"
)

// Pages is a list that grows by pages: what it holds stays where it is, nothing is
// copied when a cluster comes in, and no more than a page is spare. Its zero value
// is empty.
type Pages[I ~int32, T any] struct {
	pages []*[pageSize]T
	used  I
}

const (
	pageBits = 6
	pageSize = 1 << pageBits
)

// At returns the slot with an index, which must be below Len.
func (p *Pages[I, T]) At(i I) *T { return &p.pages[i>>pageBits][i&(pageSize-1)] }

// Len returns the number of slots.
func (p *Pages[I, T]) Len() I { return p.used }

// Add returns the index of a new slot at the end. It holds the zero value, unless
// Cut left something there.
func (p *Pages[I, T]) Add() I {
	if int(p.used) == len(p.pages)*pageSize {
		p.pages = append(p.pages, new([pageSize]T))
	}
	p.used++
	return p.used - 1
}

// Cut drops the slots from an index on, and the memory of whole pages of them.
func (p *Pages[I, T]) Cut(end I) {
	pages := (int(end) + pageSize - 1) / pageSize
	clear(p.pages[pages:])
	p.pages, p.used = p.pages[:pages], end
}

// compact gives back the memory of what is gone, where that is much: a map and a
// slice that were once large stay so, and a map grows when its keys change often.
func (s *Store) compact() {
	if s.forgotten > leastSpare && s.forgotten > int(s.containers.Len())/spareShare {
		s.compactContainers()
	}
	end := s.series.Len()
	for end > 0 && !s.series.At(end-1).live {
		end--
		s.floor = max(s.floor, s.series.At(end).version)
	}
	if spare := s.series.Len() - end; spare > leastSpare && spare > s.series.Len()/spareShare {
		s.series.Cut(end)
		s.freeSeries = slices.DeleteFunc(s.freeSeries, func(i Series) bool { return i >= end })
		s.names = NewIndex[seriesName, Series]()
		for series, key := range s.All() {
			s.names.Put(key.Namespace, key.name(), series)
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
	s.containers, s.freeContainers, s.forgotten = Pages[int32, container]{}, nil, 0
	s.pods, s.tracked = newPodIndex(), 0
	for series := range s.series.Len() {
		h := s.series.At(series)
		first := h.first
		h.first = none
		for at := first; h.live && at != none; at = former.At(at).next {
			slot := s.containers.Add()
			*s.containers.At(slot) = *former.At(at)
			s.join(slot, s.pods.recent(h.key.Namespace, former.At(at).pod), h.key.Namespace)
			s.link(slot, series)
		}
	}
}
