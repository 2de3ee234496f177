package main

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
)

// sizes is the number of values of the label vpa_size_log2: 0 to 19. Larger VPAs
// count with the last.
const sizes = 20

// metrics are what a pass reports. The names, labels and buckets of vpa_updater_
// are those of the reference VPA.
type metrics struct {
	controlled, evictable, withEvictable, withEvicted *prometheus.GaugeVec
	updatable, withUpdatable, withUpdated             *prometheus.GaugeVec

	evicted, updated, failedEvictions, failedResizes, infeasible *prometheus.CounterVec

	latency   *prometheus.HistogramVec
	heartbeat *prometheus.CounterVec
	skipped   *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "vpa", Subsystem: "updater", Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "vpa", Subsystem: "updater", Name: name, Help: help}, labels)
	}
	const size, mode, name, namespace, reason = "vpa_size_log2", "update_mode", "vpa_name", "vpa_namespace", "reason"
	m := &metrics{
		controlled:      gauge("controlled_pods_total", "Pods that a VPA controls.", size, mode),
		evictable:       gauge("evictable_pods_total", "Pods that are to be evicted.", size, mode),
		withEvictable:   gauge("vpas_with_evictable_pods_total", "VPAs with a pod that is to be evicted.", size, mode),
		withEvicted:     gauge("vpas_with_evicted_pods_total", "VPAs with a pod that was evicted in the last pass.", size, mode),
		updatable:       gauge("in_place_updatable_pods_total", "Pods that are to be resized in place.", size),
		withUpdatable:   gauge("vpas_with_in_place_updatable_pods_total", "VPAs with a pod that is to be resized in place.", size),
		withUpdated:     gauge("vpas_with_in_place_updated_pods_total", "VPAs with a pod that was resized in the last pass.", size),
		evicted:         counter("evicted_pods_total", "Pods evicted.", size, mode, name, namespace),
		updated:         counter("in_place_updated_pods_total", "Pods resized in place.", size, name, namespace),
		failedEvictions: counter("failed_eviction_attempts_total", "Evictions that did not come about.", size, mode, reason, name, namespace),
		failedResizes:   counter("failed_in_place_update_attempts_total", "Resizes that did not come about.", size, reason, name, namespace),
		infeasible:      counter("in_place_infeasible_skip_pods_total", "Pods not resized because their node is known to refuse, once for each pass.", size, name, namespace),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "vpa", Subsystem: "updater", Name: "execution_latency_seconds",
			Help:    "Time that the steps of a pass take.",
			Buckets: []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120, 150, 240, 300}}, []string{"step"}),
		heartbeat: counter("admission_controller_status_invalid_total", "Passes skipped because the admission controller did not show that it works.", reason),
		skipped: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "loadline", Subsystem: "updater", Name: "skipped_pods",
			Help: "Pods that the last pass left alone, by reason."}, []string{reason}),
	}
	registry.MustRegister(m.controlled, m.evictable, m.withEvictable, m.withEvicted, m.updatable, m.withUpdatable, m.withUpdated,
		m.evicted, m.updated, m.failedEvictions, m.failedResizes, m.infeasible, m.latency, m.heartbeat, m.skipped)
	return m
}

// stopwatch measures the steps of one pass.
type stopwatch struct {
	latency     *prometheus.HistogramVec
	begin, last time.Time
}

func (m *metrics) stopwatch() *stopwatch {
	now := time.Now()
	return &stopwatch{m.latency, now, now}
}

// step ends a step.
func (s *stopwatch) step(name string) {
	now := time.Now()
	s.latency.WithLabelValues(name).Observe(now.Sub(s.last).Seconds())
	s.last = now
}

func (s *stopwatch) total() {
	s.latency.WithLabelValues("total").Observe(time.Since(s.begin).Seconds())
}

// score is what one pass does for one VPA.
type score struct {
	name               cache.ObjectName
	mode               vpav1.UpdateMode
	pods               int
	evictable, evicted int
	updatable, resized int
}

// size is the value of the label vpa_size_log2.
func (s *score) size() string { return strconv.Itoa(sizeOf(s.pods)) }

func sizeOf(pods int) int { return min(max(bits.Len(uint(max(pods, 0)))-1, 0), sizes-1) }

// begin makes the counters of a VPA visible before anything happens.
func (m *metrics) begin(s *score) {
	m.evicted.WithLabelValues(s.size(), string(s.mode), s.name.Name, s.name.Namespace)
	m.updated.WithLabelValues(s.size(), s.name.Name, s.name.Namespace)
}

func (m *metrics) failedEviction(s *score, reason string) {
	m.failedEvictions.WithLabelValues(s.size(), string(s.mode), reason, s.name.Name, s.name.Namespace).Inc()
}

func (m *metrics) failedResize(s *score, reason string) {
	m.failedResizes.WithLabelValues(s.size(), reason, s.name.Name, s.name.Namespace).Inc()
}

// forget drops the counters of a VPA that was deleted.
func (m *metrics) forget(vpa cache.ObjectName) {
	labels := prometheus.Labels{"vpa_name": vpa.Name, "vpa_namespace": vpa.Namespace}
	for _, c := range []*prometheus.CounterVec{m.evicted, m.updated, m.failedEvictions, m.failedResizes, m.infeasible} {
		c.DeletePartialMatch(labels)
	}
}

// publish sets the gauges to what the pass found and did. The gauges by size
// alone show all sizes, those by mode only pairs that occur.
func (m *metrics) publish(scores []*score, skipped map[disruption.Reason]int) {
	for _, g := range []*prometheus.GaugeVec{m.controlled, m.evictable, m.withEvictable, m.withEvicted} {
		g.Reset()
	}
	var updatable, withUpdatable, withUpdated [sizes]int
	for _, s := range scores {
		size := sizeOf(s.pods)
		m.controlled.WithLabelValues(s.size(), string(s.mode)).Add(float64(s.pods))
		m.evictable.WithLabelValues(s.size(), string(s.mode)).Add(float64(s.evictable))
		m.withEvictable.WithLabelValues(s.size(), string(s.mode)).Add(float64(min(s.evictable, 1)))
		m.withEvicted.WithLabelValues(s.size(), string(s.mode)).Add(float64(min(s.evicted, 1)))
		updatable[size] += s.updatable
		withUpdatable[size] += min(s.updatable, 1)
		withUpdated[size] += min(s.resized, 1)
	}
	for size := range sizes {
		label := strconv.Itoa(size)
		m.updatable.WithLabelValues(label).Set(float64(updatable[size]))
		m.withUpdatable.WithLabelValues(label).Set(float64(withUpdatable[size]))
		m.withUpdated.WithLabelValues(label).Set(float64(withUpdated[size]))
	}
	for _, r := range disruption.Reasons() {
		m.skipped.WithLabelValues(r.String()).Set(float64(skipped[r]))
	}
}
