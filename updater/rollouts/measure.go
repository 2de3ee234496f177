package rollouts

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/serving"
)

// batchDelay is how long the measurer collects pods for one query.
const batchDelay = time.Second

// measurer queries CPU pressure apart from queue workers, so that queries delay no judgment.
type measurer struct {
	source *EvidenceSource
	woken  chan struct{}

	mu        sync.Mutex
	requested map[cache.ObjectName]changeKey
	results   map[types.UID]measured
}

type changeKey struct {
	uid types.UID
	at  time.Time // when the change was sent
}

type measured struct {
	of          changeKey
	now, before map[ContainerKey]CPUPressure
}

func newMeasurer(source *EvidenceSource) *measurer {
	return &measurer{source: source, woken: make(chan struct{}, 1), requested: map[cache.ObjectName]changeKey{}, results: map[types.UID]measured{}}
}

// request returns the measurement of a changed pod, or requests it and returns false.
func (m *measurer) request(pod cache.ObjectName, of changeKey) (measured, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, found := m.results[of.uid]; found && known.of.at.Equal(of.at) {
		return known, true
	}
	m.requested[pod] = of
	select {
	case m.woken <- struct{}{}:
	default:
	}
	return measured{}, false
}

func (m *measurer) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.results, uid)
}

// run measures requested pods until ctx ends, and calls ready for each finished pod.
func (m *measurer) run(ctx context.Context, ready func(cache.ObjectName), missing func(pods int)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.woken:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(batchDelay):
		}
		err := serving.Guard(func() error { m.measure(ctx, time.Now(), ready, missing); return nil })
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to query CPU pressure of changed pods")
		}
	}
}

func (m *measurer) measure(ctx context.Context, now time.Time, ready func(cache.ObjectName), missing func(pods int)) {
	m.mu.Lock()
	wanted := m.requested
	maps.DeleteFunc(m.results, func(_ types.UID, known measured) bool { return now.Sub(known.of.at) > 2*maxClockSkew }) // deleted pods
	m.requested = map[cache.ObjectName]changeKey{}
	m.mu.Unlock()
	byNamespace := map[string][]cache.ObjectName{}
	for _, pod := range slices.SortedFunc(maps.Keys(wanted), func(a, b cache.ObjectName) int { return cmp.Compare(a.Name, b.Name) }) {
		byNamespace[pod.Namespace] = append(byNamespace[pod.Namespace], pod)
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		pods := byNamespace[namespace]
		shares, err := m.source.CPUPressure(ctx, namespace, names(pods), now)
		// Pods changed in the same minute share a query for the time before.
		minute := func(pod cache.ObjectName) time.Time { return wanted[pod].at.Truncate(time.Minute) }
		before := map[time.Time]map[ContainerKey]CPUPressure{}
		for _, pod := range pods {
			at := minute(pod)
			if err != nil || before[at] != nil {
				continue
			}
			same := slices.DeleteFunc(slices.Clone(pods), func(other cache.ObjectName) bool { return !minute(other).Equal(at) })
			before[at], err = m.source.CPUPressure(ctx, namespace, names(same), at)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to query CPU pressure of changed pods", "namespace", namespace, "pods", len(pods))
			missing(len(pods))
			continue
		}
		if unknown := countMissing(shares, pods); unknown > 0 {
			klog.FromContext(ctx).V(2).Info("No CPU metrics of changed pods in Prometheus, check the namespace, pod and container labels", "namespace", namespace, "pods", unknown)
			missing(unknown)
		}
		m.mu.Lock()
		for _, pod := range pods {
			of := wanted[pod]
			m.results[of.uid] = measured{of, shares, before[minute(pod)]}
		}
		m.mu.Unlock()
		for _, pod := range pods {
			ready(pod)
		}
	}
}

func countMissing(shares map[ContainerKey]CPUPressure, pods []cache.ObjectName) int {
	known := map[string]bool{}
	for key := range shares {
		known[key.Pod] = true
	}
	n := 0
	for _, pod := range pods {
		if !known[pod.Name] {
			n++
		}
	}
	return n
}

func names(pods []cache.ObjectName) []string {
	all := make([]string, len(pods))
	for i, pod := range pods {
		all[i] = pod.Name
	}
	return all
}

// add treats a container without a previous CPU limit as not throttled.
func (m measured) add(e *rollout.Evidence, pod string, change rollout.Change) {
	e.Measured = true
	for i := range e.Containers {
		w := &e.Containers[i]
		now, before := PressureOf(m.now, pod, w.Name), PressureOf(m.before, pod, w.Name)
		w.Throttled, w.ThrottledBefore, w.Pressure, w.PressureBefore = now.Throttled, before.Throttled, now.Waiting, before.Waiting
		for _, one := range change.Containers {
			if one.From.Name == w.Name && !one.From.Limits.Has(resources.CPU) {
				w.ThrottledBefore = 0
			}
		}
	}
}

// runLabels differ between runs of a container, before and after a restart. A difference in any
// other label means several scrape jobs, or a container with the same name in another cluster.
var runLabels = []string{"id", "name", "image", counterLabel}

// rates are the counter rates of a container. Each run has its own series.
type rates struct {
	scrape    map[string]string // labels except runLabels
	ambiguous bool              // scrape differs between series
	counters  map[string]rate   // fullWindowWaiting covers runs that existed at the start of the window
}

type rate struct {
	sum  float64
	runs int
}

func (r *rates) add(labels map[string]string, value float64) {
	scrape := maps.Clone(labels)
	maps.DeleteFunc(scrape, func(name, _ string) bool { return slices.Contains(runLabels, name) })
	if r.scrape == nil {
		r.scrape = scrape
	}
	r.ambiguous = r.ambiguous || !maps.Equal(r.scrape, scrape)
	c := r.counters[labels[counterLabel]]
	r.counters[labels[counterLabel]] = rate{c.sum + value, c.runs + 1}
}

// pressure returns the known values. Throttling is a ratio, so several runs can be combined.
// Waiting times of runs may overlap, so they are known only for a single run that covers the
// window.
func (r *rates) pressure() CPUPressure {
	s := CPUPressure{math.NaN(), math.NaN()}
	if r.ambiguous {
		return s
	}
	if periods, throttled := r.counters[periodsMetric], r.counters[throttledMetric]; periods.runs == throttled.runs {
		s.Throttled = ratio(throttled.sum / periods.sum)
	}
	if whole := r.counters[fullWindowWaiting]; whole.runs == 1 && r.counters[waitingMetric].runs == 1 {
		s.Waiting = ratio(whole.sum)
	}
	return s
}

// ratio returns a value of 0 to 1, or NaN. Extrapolated rates may slightly exceed 1.
func ratio(value float64) float64 {
	const most = 1.25
	if value < 0 || value > most {
		return math.NaN()
	}
	return min(value, 1)
}
