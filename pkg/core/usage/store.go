// Package usage turns samples of running containers into usage histories that outlive the
// containers.
//
// A series is the history of all containers with the same namespace, container name and pod labels.
// A tracked container is one running instance. It feeds its series and owns the window for its
// memory peak. Slots and names are freed when a series expires or a container is forgotten, so the
// size of a Store follows its content.
//
// A Store has no lock. Methods that only read may run concurrently. All others, including Check,
// need exclusive access.
package usage

import (
	"slices"
	"time"
)

// none is a missing time, amount or slot.
const none = -1

// Store holds all series and tracked containers. Create it with NewStore.
//
//	series      [ 0: a/app | 1: b/app | 2: free | 3: a/db ]
//	                |          |                    |
//	                v first    v                    v
//	containers  [ 0 <-> 3 ]  [ 1 ]                [ 4 ]      2 is free
//
// Each series is the head of a list of its containers, linked by slots. The containers of a pod
// form another list. The key of a container is derived from its pod and series, which saves 10 MB
// for 100,000 containers.
type Store struct {
	config         StoreConfig
	series         Pages[Series, history]
	containers     Pages[int32, container]
	freeSeries     []Series
	freeContainers []int32
	names          Index[seriesName, Series]
	pods           podIndex
	tracked        int
	forgotten      int    // containers since the last compaction
	minVersion     uint64 // highest version of a freed slot
	newest         int64  // time of the newest CPU sample
}

type history struct {
	key     SeriesKey
	profile Profile
	created time.Time
	rules   *Rules // nil uses the rules of the store
	first   int32  // first container, or none
	live    bool   // false if the slot is free
	version uint64 // increases with each change, also across reuse of the slot
}

type container struct {
	pod            string
	series         Series
	previous, next int32 // containers of the same series
	sibling        int32 // next container of the pod
	lastCPU        int64 // time of the last CPU sample
	window         window
	kill           *kill // latest kills with an ID, or nil
}

func (s *Store) slot(c ContainerKey) (slot int32, known bool) {
	first, known := s.pods.Find(c.Namespace, c.Pod)
	if !known {
		return none, false
	}
	return s.findInPod(first, c)
}

// slotCached is slot for consecutive containers. Readers must not use it: it changes the cache.
func (s *Store) slotCached(c ContainerKey) (slot int32, known bool) {
	return s.findInPod(s.pods.findCached(c.Namespace, c.Pod), c)
}

func (s *Store) findInPod(slot int32, c ContainerKey) (container int32, known bool) {
	for slot != none && s.series.At(s.containers.At(slot).series).key.Container != c.Container {
		slot = s.containers.At(slot).sibling
	}
	return slot, slot != none
}

func (s *Store) key(c *container) ContainerKey {
	of := &s.series.At(c.series).key
	return ContainerKey{Namespace: of.Namespace, Pod: c.pod, Container: of.Container}
}

// NewStore returns an empty store.
func NewStore(c StoreConfig) *Store {
	c.Rules = c.Rules.Normalized()
	return &Store{config: c, names: NewIndex[seriesName, Series](), pods: newPodIndex(), newest: none}
}

// Track starts tracking a running container, or moves it to another series after its pod labels
// changed. It returns the series and whether it was created. Namespace and container name of both
// keys must be equal.
func (s *Store) Track(c ContainerKey, key SeriesKey, now time.Time) (series Series, created bool) {
	series, found := s.names.FindCached(key.Namespace, key.name())
	if !found {
		series = s.addSeries(key, now)
	}
	s.Feed(c, series)
	return series, !found
}

// Feed is Track for an existing series handle.
func (s *Store) Feed(c ContainerKey, series Series) {
	first := s.pods.findCached(c.Namespace, c.Pod)
	slot, known := s.findInPod(first, c)
	switch {
	case !known:
		slot = s.addContainer(c, first)
	case s.containers.At(slot).series == series:
		return
	default:
		s.detach(slot)
		s.containers.At(slot).window.forgetPeak() // the peak belongs to the previous series
	}
	s.link(slot, series)
}

func (s *Store) addSeries(key SeriesKey, now time.Time) Series {
	var slot Series
	if n := len(s.freeSeries); n > 0 {
		slot, s.freeSeries = s.freeSeries[n-1], s.freeSeries[:n-1]
	} else {
		slot = s.series.Add()
		s.series.At(slot).version = s.minVersion
	}
	*s.series.At(slot) = history{
		key: key, profile: NewProfile(s.config.Shape), created: s.CredibleTime(now), first: none, live: true,
		version: s.series.At(slot).version + 1,
	}
	s.names.Put(key.Namespace, key.name(), slot)
	return slot
}

func (s *Store) addContainer(key ContainerKey, first int32) int32 {
	var slot int32
	if n := len(s.freeContainers); n > 0 {
		slot, s.freeContainers = s.freeContainers[n-1], s.freeContainers[:n-1]
	} else {
		slot = s.containers.Add()
	}
	*s.containers.At(slot) = container{pod: key.Pod, lastCPU: none, window: newWindow()}
	s.addToPod(slot, first, key.Namespace)
	return slot
}

// addToPod links a container to its pod. The argument first is none for the first container.
func (s *Store) addToPod(slot, first int32, namespace string) {
	s.tracked++
	if first == none {
		s.containers.At(slot).sibling = none
		s.pods.setFirst(namespace, s.containers.At(slot).pod, slot)
		return
	}
	s.containers.At(slot).sibling, s.containers.At(first).sibling = s.containers.At(first).sibling, slot
}

func (s *Store) removeFromPod(slot int32, namespace string) {
	s.tracked--
	pod, next := s.containers.At(slot).pod, s.containers.At(slot).sibling
	first, _ := s.pods.Find(namespace, pod)
	switch {
	case first != slot:
		for s.containers.At(first).sibling != slot {
			first = s.containers.At(first).sibling
		}
		s.containers.At(first).sibling = next
	case next != none:
		s.pods.setFirst(namespace, pod, next)
	default:
		s.pods.remove(namespace, pod)
	}
}

func (s *Store) link(slot int32, series Series) {
	c, h := s.containers.At(slot), s.series.At(series)
	c.series, c.previous, c.next = series, none, h.first
	if h.first != none {
		s.containers.At(h.first).previous = slot
	}
	h.first = slot
}

func (s *Store) unlink(slot int32) {
	c := s.containers.At(slot)
	if c.previous == none {
		s.series.At(c.series).first = c.next
	} else {
		s.containers.At(c.previous).next = c.next
	}
	if c.next != none {
		s.containers.At(c.next).previous = c.previous
	}
}

// detach unlinks a container from its series. The peak of its window becomes final.
func (s *Store) detach(slot int32) {
	if c := s.containers.At(slot); c.window.peak() != none {
		s.series.At(c.series).version++
	}
	s.unlink(slot)
}

// Forget removes a container that no longer runs, if tracked. Its series stays until it expires.
func (s *Store) Forget(c ContainerKey) bool {
	slot, known := s.slot(c)
	if !known {
		return false
	}
	s.detach(slot)
	s.removeFromPod(slot, c.Namespace)
	*s.containers.At(slot) = container{}
	s.freeContainers = append(s.freeContainers, slot)
	s.forgotten++
	return true
}

// Rules returns the rules of series without override.
func (s *Store) Rules() Rules { return s.config.Rules }

// SetRules sets the rules of a series. SetRules(x, s.Rules()) removes them. Invalid values are
// corrected: an interval below a second or above 68 years, a count below 1 and a negative bump.
func (s *Store) SetRules(series Series, r Rules) {
	h := s.series.At(series)
	switch r = r.Normalized(); {
	case r == s.config.Rules:
		h.rules = nil
	case h.rules == nil || *h.rules != r:
		h.rules = new(r)
	}
}

func (s *Store) rules(h *history) Rules {
	if h.rules != nil {
		return *h.rules
	}
	return s.config.Rules
}

// maxClockLead is the maximum lead of the local clock over the samples.
const maxClockLead = time.Hour

// CredibleTime returns now, but at most one hour after the newest CPU sample: without samples
// nothing may expire, because the local clock may have jumped, or their source failed for days.
func (s *Store) CredibleTime(now time.Time) time.Time {
	latest := time.Unix(0, s.newest).Add(maxClockLead)
	if s.newest == none || now.Before(latest) {
		return now
	}
	return latest.UTC()
}

// Expire removes idle series and returns their handles in ascending order. Drop the handles before
// the next Track, which may reuse them. A series is idle if its last CPU sample is at least
// Interval·Count old. Without CPU samples it is idle if it was created that long ago, or
// contributes returns false. An idle series with containers is emptied instead. The time is limited
// to CredibleTime.
func (s *Store) Expire(now time.Time, contributes func(Series) bool) []Series {
	var expired []Series
	now = s.CredibleTime(now)
	for series := range s.series.Len() {
		h := s.series.At(series)
		if !h.live || !s.idle(series, now, contributes) {
			continue
		}
		if h.first != none {
			h.reset(s, now)
			continue
		}
		s.remove(series)
		expired = append(expired, series)
	}
	s.compact()
	return expired
}

func (s *Store) idle(series Series, now time.Time, contributes func(Series) bool) bool {
	h := s.series.At(series)
	age := s.rules(h).Age()
	if !h.profile.Empty() {
		return now.Sub(h.profile.Last()) >= age
	}
	return now.Sub(h.created) >= age || !contributes(series)
}

// Pages is a list that grows by pages. Elements never move, nothing is copied during growth, and at
// most one page is unused. The zero value is empty.
type Pages[I ~int32, T any] struct {
	pages []*[pageSize]T
	used  I
}

const (
	pageBits = 6
	pageSize = 1 << pageBits
)

// At returns the element with an index, which must be below Len.
func (p *Pages[I, T]) At(i I) *T { return &p.pages[i>>pageBits][i&(pageSize-1)] }

// Len returns the number of elements.
func (p *Pages[I, T]) Len() I { return p.used }

// Add returns the index of a new element, which is zero unless Truncate left a value there.
func (p *Pages[I, T]) Add() I {
	if int(p.used) == len(p.pages)*pageSize {
		p.pages = append(p.pages, new([pageSize]T))
	}
	p.used++
	return p.used - 1
}

// Truncate removes the elements from an index on, and frees whole pages.
func (p *Pages[I, T]) Truncate(end I) {
	pages := (int(end) + pageSize - 1) / pageSize
	clear(p.pages[pages:])
	p.pages, p.used = p.pages[:pages], end
}

// compact frees the memory of removed series and containers if it is significant. Maps and slices
// never shrink, and a map grows if its keys change often.
func (s *Store) compact() {
	if s.forgotten > minSpare && s.forgotten > int(s.containers.Len())/spareShare {
		s.compactContainers()
	}
	end := s.series.Len()
	for end > 0 && !s.series.At(end-1).live {
		end--
		s.minVersion = max(s.minVersion, s.series.At(end).version)
	}
	if spare := s.series.Len() - end; spare > minSpare && spare > s.series.Len()/spareShare {
		s.series.Truncate(end)
		s.freeSeries = slices.DeleteFunc(s.freeSeries, func(i Series) bool { return i >= end })
		s.names = NewIndex[seriesName, Series]()
		for series, key := range s.All() {
			s.names.Put(key.Namespace, key.name(), series)
		}
	}
	// Low slots are used first, so that high ones can be freed.
	slices.SortFunc(s.freeSeries, func(a, b Series) int { return int(b - a) })
}

// Memory is significant above both thresholds.
const (
	minSpare   = 64
	spareShare = 16 // 1/spareShare of all slots
)

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
			s.addToPod(slot, s.pods.findCached(h.key.Namespace, former.At(at).pod), h.key.Namespace)
			s.link(slot, series)
		}
	}
}
