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

// Created returns when a series began in this store, whatever it absorbed since, so from when on its samples may be our
// own. Of series that were folded together it is the first of their times, but the last while there is no CPU sample:
// then it also says when the series is so old that it expires.
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

// Used returns the highest memory use in the open window of a container in bytes, 0 if none is known.
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

// Index finds things by namespace and key. Each namespace has a map of its own. So keys
// are shorter, and while a cluster is read, one namespace after the other, only the map of
// one namespace grows: copying a map of everything would miss the caches of the processor.
type Index[K comparable, V any] struct {
	spaces    map[string]map[K]V
	namespace string // that was found last
	space     map[K]V
}

// NewIndex returns an empty index.
func NewIndex[K comparable, V any]() Index[K, V] { return Index[K, V]{spaces: map[string]map[K]V{}} }

// Find looks a key up and changes nothing.
func (x *Index[K, V]) Find(namespace string, key K) (value V, known bool) {
	value, known = x.spaces[namespace][key]
	return value, known
}

// FindNear is Find for the goroutine that changes the index: it remembers the namespace of
// the last call, and is faster where the next one is in the same.
func (x *Index[K, V]) FindNear(namespace string, key K) (value V, known bool) {
	if !x.enter(namespace) {
		return value, false
	}
	value, known = x.space[key]
	return value, known
}

// enter makes a namespace that holds anything the one that was found last, and reports whether it holds anything.
func (x *Index[K, V]) enter(namespace string) (known bool) {
	if x.space != nil && x.namespace == namespace {
		return true
	}
	space := x.spaces[namespace]
	if space != nil {
		x.namespace, x.space = namespace, space
	}
	return space != nil
}

// Put sets the value of a key.
func (x *Index[K, V]) Put(namespace string, key K, value V) {
	if !x.enter(namespace) {
		x.namespace, x.space = namespace, map[K]V{}
		x.spaces[namespace] = x.space
	}
	x.space[key] = value
}

// Remove drops a key, if it is there.
func (x *Index[K, V]) Remove(namespace string, key K) {
	delete(x.spaces[namespace], key)
	if len(x.spaces[namespace]) == 0 {
		delete(x.spaces, namespace)
		x.space = nil
	}
}

// podIndex finds the first tracked container of a pod; none = it has none.
type podIndex struct {
	Index[string, int32]

	// What was looked up last: what comes for all containers of a pod comes one after the other.
	inNamespace, pod string // pod is empty if nothing was, or it changed
	first            int32
}

func newPodIndex() podIndex { return podIndex{Index: NewIndex[string, int32]()} }

// recent looks a pod up. Readers must not use it: it changes the index.
func (x *podIndex) recent(namespace, pod string) int32 {
	if x.pod == pod && x.inNamespace == namespace && pod != "" {
		return x.first
	}
	first, known := x.FindNear(namespace, pod)
	if !known {
		return none
	}
	x.inNamespace, x.pod, x.first = namespace, pod, first
	return first
}

// lead sets the first container of a pod.
func (x *podIndex) lead(namespace, pod string, first int32) {
	x.Put(namespace, pod, first)
	x.inNamespace, x.pod, x.first = namespace, pod, first
}

// drop forgets a pod.
func (x *podIndex) drop(namespace, pod string) {
	x.Remove(namespace, pod)
	x.pod = ""
}

// seriesName names a series in its namespace.
type seriesName struct{ container, labels string }

func (k SeriesKey) name() seriesName { return seriesName{k.Container, k.Labels} }
