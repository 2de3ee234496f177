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

// ProfileOf returns the profile of one series, read-only and valid until the store changes.
func (s *Store) ProfileOf(series Series) *Profile { return &s.series.At(series).profile }

// Span returns the first and last CPU sample of a series, zero if unknown, and their number.
func (s *Store) Span(series Series) (first, last time.Time, samples int64) {
	p := &s.series.At(series).profile
	return p.First(), p.Last(), p.Samples()
}

// CreatedAt returns the time from which on samples of a series may come from this store, without
// imports. Merges keep the earlier time, but without CPU samples the later one, for expiry.
func (s *Store) CreatedAt(series Series) time.Time { return s.series.At(series).created }

// Version returns a number that increases with each change, also across reuse of the handle.
func (s *Store) Version(series Series) uint64 { return s.series.At(series).version }

// Find returns the series with a key, if there is one.
func (s *Store) Find(key SeriesKey) (Series, bool) {
	return s.names.Find(key.Namespace, key.name())
}

// Key returns the key of a series.
func (s *Store) Key(series Series) SeriesKey { return s.series.At(series).key }

// SeriesOf returns the series that a tracked container feeds.
func (s *Store) SeriesOf(c ContainerKey) (Series, bool) {
	slot, known := s.slot(c)
	if !known {
		return none, false
	}
	return s.containers.At(slot).series, true
}

// Ceiling returns the maximum possible usage of a container, or 0 if unknown.
func (s *Store) Ceiling(c ContainerKey, k resources.Kind) resources.Amount {
	if s.config.Nodes == nil {
		return 0
	}
	return s.config.Nodes.Ceiling(c, k)
}

// WindowUsage returns the maximum memory usage in the current window in bytes; 0: unknown.
func (s *Store) WindowUsage(c ContainerKey) resources.Amount {
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

// Index maps a namespace and a key to a value. One map per namespace keeps keys short, and only one
// small map grows while a cluster is loaded, which is friendly to CPU caches.
type Index[K comparable, V any] struct {
	spaces    map[string]map[K]V
	namespace string // of the last lookup
	space     map[K]V
}

// NewIndex returns an empty index.
func NewIndex[K comparable, V any]() Index[K, V] { return Index[K, V]{spaces: map[string]map[K]V{}} }

// Find returns the value of a key, without changing the index.
func (x *Index[K, V]) Find(namespace string, key K) (value V, known bool) {
	value, known = x.spaces[namespace][key]
	return value, known
}

// FindCached is Find for the goroutine that modifies the index. It caches the last namespace.
func (x *Index[K, V]) FindCached(namespace string, key K) (value V, known bool) {
	if !x.selectNamespace(namespace) {
		return value, false
	}
	value, known = x.space[key]
	return value, known
}

func (x *Index[K, V]) selectNamespace(namespace string) (known bool) {
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
	if !x.selectNamespace(namespace) {
		x.namespace, x.space = namespace, map[K]V{}
		x.spaces[namespace] = x.space
	}
	x.space[key] = value
}

// Remove deletes a key, if present.
func (x *Index[K, V]) Remove(namespace string, key K) {
	delete(x.spaces[namespace], key)
	if len(x.spaces[namespace]) == 0 {
		delete(x.spaces, namespace)
		x.space = nil
	}
}

// podIndex maps a pod to its first tracked container, or none.
type podIndex struct {
	Index[string, int32]

	// Cache of the last lookup: the containers of a pod are usually looked up in sequence.
	inNamespace, pod string // pod is empty if the cache is invalid
	first            int32
}

func newPodIndex() podIndex { return podIndex{Index: NewIndex[string, int32]()} }

// findCached returns the first container of a pod. Readers must not use it: it changes the cache.
func (x *podIndex) findCached(namespace, pod string) int32 {
	if x.pod == pod && x.inNamespace == namespace && pod != "" {
		return x.first
	}
	first, known := x.FindCached(namespace, pod)
	if !known {
		return none
	}
	x.inNamespace, x.pod, x.first = namespace, pod, first
	return first
}

func (x *podIndex) setFirst(namespace, pod string, first int32) {
	x.Put(namespace, pod, first)
	x.inNamespace, x.pod, x.first = namespace, pod, first
}

func (x *podIndex) remove(namespace, pod string) {
	x.Remove(namespace, pod)
	x.pod = ""
}

type seriesName struct{ container, labels string }

func (k SeriesKey) name() seriesName { return seriesName{k.Container, k.Labels} }
