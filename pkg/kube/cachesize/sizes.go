package cachesize

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
)

// Path is the page that Sizes serves.
const Path = "/debug/caches"

const (
	// measureInterval is the time between measurements: each one reads all cached objects.
	measureInterval = 2 * time.Minute
	// firstInterval is the time until a new store is measured.
	firstInterval = 10 * time.Second
	// shownNamespaces is the number of namespaces on the page.
	shownNamespaces = 10
)

// Sizes measures the caches of a program in Run. It is safe for concurrent use. A nil Sizes
// measures nothing.
type Sizes struct {
	mu     sync.Mutex
	stores map[string][]cache.Store // by resource
	added  bool                     // a store since the last measurement
	report Report
}

// Report is the memory of all caches.
type Report struct {
	Bytes   map[string]int64 `json:"bytes"`   // by resource
	Objects map[string]int   `json:"objects"` // by resource
	// Namespaces are the largest namespaces, the largest one first.
	Namespaces []Namespace `json:"largestNamespaces"`
}

// Namespace is the memory of the objects of a namespace.
type Namespace struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	Objects int    `json:"objects"`
}

// New returns a Sizes whose gauge is registered.
func New(registry prometheus.Registerer) *Sizes {
	s := &Sizes{stores: map[string][]cache.Store{}, report: measure(nil)}
	registry.MustRegister(s)
	return s
}

// Add adds the store of an informer. It may be added again.
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

// Run measures all caches every two minutes until ctx ends, and earlier after a new one was added.
func (s *Sizes) Run(ctx context.Context) {
	ticker := time.NewTicker(firstInterval)
	defer ticker.Stop()
	var measured time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if s.due(now.Sub(measured)) {
				s.measure()
				measured = now
			}
		}
	}
}

func (s *Sizes) due(since time.Duration) bool {
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
			met := walk{}
			for _, object := range store.List() {
				size := met.of(object)
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
	// A client that went away needs no answer.
	_ = json.NewEncoder(w).Encode(s.Report())
}
