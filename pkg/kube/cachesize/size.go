// Package cachesize measures the memory of informer caches, by resource and by namespace.
//
// Sizes collects the stores of informers, publishes a gauge for each resource and serves the
// largest namespaces. EstimateSize estimates the memory of one object.
package cachesize

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math/bits"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
)

// EstimateSize estimates the memory of an object in bytes, including all referenced memory.
func EstimateSize(object any) int64 { return sizeWalk{}.objectSize(object) }

// sizeWalk estimates the memory of several objects. Shared memory counts once.
type sizeWalk map[unsafe.Pointer]struct{}

func (w sizeWalk) objectSize(object any) int64 {
	if object == nil {
		return 0
	}
	v := reflect.ValueOf(object)
	if v.Kind() != reflect.Pointer {
		return int64(v.Type().Size()) + w.referencedSize(v)
	}
	return w.referencedSize(v)
}

func (w sizeWalk) visit(at unsafe.Pointer) bool {
	if _, met := w[at]; met {
		return false
	}
	w[at] = struct{}{}
	return true
}

// referencedSize does not count the value itself.
func (w sizeWalk) referencedSize(v reflect.Value) (n int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer:
		if v.IsNil() || v.Type() == location || !w.visit(v.UnsafePointer()) {
			return 0
		}
		return int64(v.Type().Elem().Size()) + w.referencedSize(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return w.referencedSize(v.Elem())
	case reflect.Slice:
		return int64(v.Cap())*int64(v.Type().Elem().Size()) + w.elementsSize(v)
	case reflect.Array:
		return w.elementsSize(v)
	case reflect.Map:
		return w.mapSize(v)
	case reflect.Struct:
		for _, i := range findPointerFields(v.Type()) {
			n += w.referencedSize(v.Field(i))
		}
	}
	return n
}

func (w sizeWalk) elementsSize(v reflect.Value) (n int64) {
	if len(findPointerFields(v.Type().Elem())) > 0 {
		for i := range v.Len() {
			n += w.referencedSize(v.Index(i))
		}
	}
	return n
}

// mapSize counts a header, and slots for a power of two of entries, at least 8.
func (w sizeWalk) mapSize(v reflect.Value) int64 {
	const header, group = 48, 8
	if v.IsNil() || !w.visit(v.UnsafePointer()) {
		return 0
	}
	entry := int64(v.Type().Key().Size() + v.Type().Elem().Size() + 1)
	n := header + entry*max(group, int64(1)<<bits.Len(uint(v.Len())*8/7))
	for entries := v.MapRange(); entries.Next(); {
		n += w.referencedSize(entries.Key()) + w.referencedSize(entries.Value())
	}
	return n
}

// location is shared by all times of a zone.
var location = reflect.TypeFor[*time.Location]()

var pointerFields sync.Map // reflect.Type -> []int

// findPointerFields returns the fields of a struct that reference other memory. For other types it
// returns one element if values do.
func findPointerFields(t reflect.Type) []int {
	if known, found := pointerFields.Load(t); found {
		return known.([]int)
	}
	var fields []int
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if len(findPointerFields(t.Field(i).Type)) > 0 {
				fields = append(fields, i)
			}
		}
	case reflect.Array:
		fields = findPointerFields(t.Elem())
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		fields = []int{0}
	}
	pointerFields.Store(t, fields)
	return fields
}

// Path is the URL path of the page that Sizes serves.
const Path = "/debug/caches"

const (
	// measureInterval is the time between measurements, which read all cached objects.
	measureInterval = 2 * time.Minute
	// firstInterval is the maximum time until the first measurement of a new store.
	firstInterval   = 10 * time.Second
	shownNamespaces = 10
)

// Sizes measures the caches of a program. It is safe for concurrent use. A nil Sizes measures
// nothing.
type Sizes struct {
	mu     sync.Mutex
	stores map[string][]cache.Store // by resource
	added  bool                     // since the last measurement
	report Report
}

// Report is the memory of all caches.
type Report struct {
	Bytes   map[string]int64 `json:"bytes"`   // by resource
	Objects map[string]int   `json:"objects"` // by resource
	// Namespaces are the largest namespaces, in descending order.
	Namespaces []Namespace `json:"largestNamespaces"`
}

// Namespace is the memory of the objects of a namespace.
type Namespace struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	Objects int    `json:"objects"`
}

// New returns a Sizes and registers its gauge.
func New(registry prometheus.Registerer) *Sizes {
	s := &Sizes{stores: map[string][]cache.Store{}, report: measure(nil)}
	registry.MustRegister(s)
	return s
}

// Add adds the store of an informer. Adding it again has no effect.
func (s *Sizes) Add(resource string, store cache.Store) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.stores[resource], store) {
		s.stores[resource], s.added = append(s.stores[resource], store), true
	}
}

// Run measures all caches every two minutes until ctx ends, and earlier after Add.
func (s *Sizes) Run(ctx context.Context) {
	ticker := time.NewTicker(firstInterval)
	defer ticker.Stop()
	var measured time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if s.isDue(now.Sub(measured)) {
				s.measure()
				measured = now
			}
		}
	}
}

func (s *Sizes) isDue(since time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.added || since >= measureInterval
}

// measure replaces the report. It takes a second for 50,000 pods.
func (s *Sizes) measure() {
	s.mu.Lock()
	stores := make(map[string][]cache.Store, len(s.stores))
	for resource, of := range s.stores {
		stores[resource] = slices.Clone(of)
	}
	s.added = false
	s.mu.Unlock()
	report := measure(stores)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report = report
}

// Report returns the memory of all caches as of the last measurement.
func (s *Sizes) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

func measure(stores map[string][]cache.Store) (r Report) {
	r.Bytes, r.Objects = map[string]int64{}, map[string]int{}
	namespaces := map[string]Namespace{}
	for _, resource := range slices.Sorted(maps.Keys(stores)) {
		r.Bytes[resource] = 0
		for _, store := range stores[resource] {
			seen := sizeWalk{}
			for _, object := range store.List() {
				size := seen.objectSize(object)
				r.Bytes[resource] += size
				r.Objects[resource]++
				if o, namespaced := object.(interface{ GetNamespace() string }); namespaced && o.GetNamespace() != "" {
					n := namespaces[o.GetNamespace()]
					namespaces[o.GetNamespace()] = Namespace{o.GetNamespace(), n.Bytes + size, n.Objects + 1}
				}
			}
		}
	}
	largest := slices.SortedFunc(maps.Values(namespaces), func(a, b Namespace) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	r.Namespaces = append([]Namespace{}, largest[:min(len(largest), shownNamespaces)]...)
	return r
}

var cacheBytes = prometheus.NewDesc("loadline_cache_bytes",
	"Estimated memory of the cached objects of a resource.", []string{"resource"}, nil)

// Describe sends the description of the gauge.
func (s *Sizes) Describe(to chan<- *prometheus.Desc) { to <- cacheBytes }

// Collect sends the memory of each cache.
func (s *Sizes) Collect(to chan<- prometheus.Metric) {
	for resource, size := range s.Report().Bytes {
		to <- prometheus.MustNewConstMetric(cacheBytes, prometheus.GaugeValue, float64(size), resource)
	}
}

// ServeHTTP answers with the memory of all caches as JSON.
func (s *Sizes) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Report())
}
