// Package usage turns samples of running containers into histories that outlive the containers.
//
// A series is one history: that of all containers with the same namespace, container name and pod labels. A tracked
// container is one running instance; it feeds its series and owns the window in which its memory peak is sought. Store
// holds both in lists; slots and names go when a series expires or a container is forgotten, so a store is as large as
// what it knows.
//
// Write, then read: Track, Feed, Forget, Observe, ObserveOOM, Resume, SetRules, Expire, Fold and Absorb need the store
// for themselves; all else may run side by side. There is no lock.
//
// The package does not know VPAs, does not log and never asks for the time.
package usage

import (
	"slices"
	"time"
)

// none stands for an instant, an amount or a slot that there is not.
const none = -1

// Store holds all series and tracked containers. Make it with NewStore.
//
//	series      [ 0: a/app | 1: b/app | 2: free | 3: a/db ]
//	                |          |                    |
//	                v first    v                    v
//	containers  [ 0 <-> 3 ]  [ 1 ]                [ 4 ]      2 is free
//
// Each series heads a list, linked by slots, of the containers that feed it. The containers of a pod are another such
// list. The key of a container is put together from its pod and its series: that of 100,000 would take 10 MB more.
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
	floor          uint64 // highest version of a slot that was given back
	newest         int64  // instant of the newest CPU sample
}

// history is one series.
type history struct {
	key     SeriesKey
	profile Profile
	created time.Time
	rules   *Rules // nil = those of the store
	first   int32  // container that feeds it, none = nothing does
	live    bool   // false = the slot is free
	version uint64 // grows with each change, also over uses of the slot
}

// container is one running container.
type container struct {
	pod            string
	series         Series
	previous, next int32 // containers that feed the same series
	sibling        int32 // next container of the pod
	lastCPU        int64 // instant of the last CPU sample
	window         window
	kill           *kill // nil = none that had an ID
}

// slot finds a tracked container.
func (s *Store) slot(c ContainerKey) (slot int32, known bool) {
	first, known := s.pods.Find(c.Namespace, c.Pod)
	if !known {
		return none, false
	}
	return s.among(first, c)
}

// observed is slot for what comes for all containers of a pod one after the other.
// Readers must not use it: it changes the store.
func (s *Store) observed(c ContainerKey) (slot int32, known bool) {
	return s.among(s.pods.recent(c.Namespace, c.Pod), c)
}

// among finds a container of a pod whose first one is given; none = it has none.
func (s *Store) among(slot int32, c ContainerKey) (container int32, known bool) {
	for slot != none && s.series.At(s.containers.At(slot).series).key.Container != c.Container {
		slot = s.containers.At(slot).sibling
	}
	return slot, slot != none
}

// key returns the key of a tracked container.
func (s *Store) key(c *container) ContainerKey {
	of := &s.series.At(c.series).key
	return ContainerKey{Namespace: of.Namespace, Pod: c.pod, Container: of.Container}
}

// NewStore returns an empty store.
func NewStore(c StoreConfig) *Store {
	c.Rules = c.Rules.Sound()
	return &Store{config: c, names: NewIndex[seriesName, Series](), pods: newPodIndex(), newest: none}
}

// Track makes a running container known or, when the labels of its pod changed, lets it feed another series. It returns
// the series, which it creates if needed, and whether it did. Repeating it changes nothing. Namespace and container
// name of the two keys must be the same.
func (s *Store) Track(c ContainerKey, key SeriesKey, now time.Time) (series Series, created bool) {
	series, found := s.names.FindNear(key.Namespace, key.name())
	if !found {
		series = s.addSeries(key, now)
	}
	s.Feed(c, series)
	return series, !found
}

// Feed is Track for a series whose handle is known.
func (s *Store) Feed(c ContainerKey, series Series) {
	first := s.pods.recent(c.Namespace, c.Pod)
	slot, known := s.among(first, c)
	switch {
	case !known:
		slot = s.addContainer(c, first)
	case s.containers.At(slot).series == series:
		return
	default:
		s.leave(slot)
		s.containers.At(slot).window.forgetPeak() // it belongs to the other series
	}
	s.link(slot, series)
}

func (s *Store) addSeries(key SeriesKey, now time.Time) Series {
	var slot Series
	if n := len(s.freeSeries); n > 0 {
		slot, s.freeSeries = s.freeSeries[n-1], s.freeSeries[:n-1]
	} else {
		slot = s.series.Add()
		s.series.At(slot).version = s.floor
	}
	*s.series.At(slot) = history{
		key: key, profile: NewProfile(s.config.Shape), created: s.Credible(now), first: none, live: true,
		version: s.series.At(slot).version + 1,
	}
	s.names.Put(key.Namespace, key.name(), slot)
	return slot
}

// addContainer adds a container to a pod whose first one is given; none = it is the first.
func (s *Store) addContainer(key ContainerKey, first int32) int32 {
	var slot int32
	if n := len(s.freeContainers); n > 0 {
		slot, s.freeContainers = s.freeContainers[n-1], s.freeContainers[:n-1]
	} else {
		slot = s.containers.Add()
	}
	*s.containers.At(slot) = container{pod: key.Pod, lastCPU: none, window: newWindow()}
	s.join(slot, first, key.Namespace)
	return slot
}

// join makes a container one of its pod, whose first one is given; none = it is the first.
func (s *Store) join(slot, first int32, namespace string) {
	s.tracked++
	if first == none {
		s.containers.At(slot).sibling = none
		s.pods.lead(namespace, s.containers.At(slot).pod, slot)
		return
	}
	s.containers.At(slot).sibling, s.containers.At(first).sibling = s.containers.At(first).sibling, slot
}

// removeFromPod takes a container from its pod.
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
		s.pods.lead(namespace, pod, next)
	default:
		s.pods.drop(namespace, pod)
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

// leave lets a container feed its series no more. The peak of its window, if it has one, is final from now on.
func (s *Store) leave(slot int32) {
	if c := s.containers.At(slot); c.window.peak() != none {
		s.series.At(c.series).version++
	}
	s.unlink(slot)
}

// Forget drops a container that no longer runs and reports whether it was known. Its series stays until it expires.
func (s *Store) Forget(c ContainerKey) bool {
	slot, known := s.slot(c)
	if !known {
		return false
	}
	s.leave(slot)
	s.removeFromPod(slot, c.Namespace)
	*s.containers.At(slot) = container{}
	s.freeContainers = append(s.freeContainers, slot)
	s.forgotten++
	return true
}

// Rules returns the rules of series without override.
func (s *Store) Rules() Rules { return s.config.Rules }

// SetRules gives a series its own rules from now on; SetRules(x, s.Rules()) removes them again. An interval below a
// second or above 68 years, a count below 1 and a negative bump are brought into range.
func (s *Store) SetRules(series Series, r Rules) {
	h := s.series.At(series)
	switch r = r.Sound(); {
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

// mostAhead is how far our clock may run ahead of the samples.
const mostAhead = time.Hour

// Credible returns a time or, if that is more than an hour after the newest CPU sample of all, that hour. Where nothing
// comes in any more, nothing must expire either: our clock may have jumped, or the source of samples failed for days.
func (s *Store) Credible(now time.Time) time.Time {
	latest := time.Unix(0, s.newest).Add(mostAhead)
	if s.newest == none || now.Before(latest) {
		return now
	}
	return latest.UTC()
}

// Expire removes idle series and returns their handles in ascending order. Drop them before the next Track, which may
// give them to other series. Idle is a series whose last CPU sample is Interval·Count old or, if it has none, one that
// was created as long ago or of which contributes says that nothing is to be expected. An idle series that containers
// still feed is emptied instead and keeps its handle. A time that is not credible counts as the latest that is.
func (s *Store) Expire(now time.Time, contributes func(Series) bool) []Series {
	var gone []Series
	now = s.Credible(now)
	for series := range s.series.Len() {
		h := s.series.At(series)
		if !h.live || !s.idle(series, now, contributes) {
			continue
		}
		if h.first != none {
			h.empty(s, now)
			continue
		}
		s.remove(series)
		gone = append(gone, series)
	}
	s.compact()
	return gone
}

func (s *Store) idle(series Series, now time.Time, contributes func(Series) bool) bool {
	h := s.series.At(series)
	age := s.rules(h).Age()
	if !h.profile.Empty() {
		return now.Sub(h.profile.Last()) >= age
	}
	return now.Sub(h.created) >= age || !contributes(series)
}

// Pages is a list that grows by pages: what it holds stays where it is, nothing is copied when a cluster comes in, and
// no more than a page is spare. Its zero value is empty.
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

// Add returns the index of a new slot at the end. It holds the zero value, unless Cut left something there.
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

// compactContainers moves the containers, in the order of their series, into new slots.
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
