package updater

import (
	"math/bits"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/nodeload"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/shares"
)

// sizeClasses is the number of values of vpa_size_log2. The last one includes larger VPAs.
const sizeClasses = 20

// metrics match the reference VPA in names, labels and buckets of vpa_updater_.
type metrics struct {
	controlled, evictable, withEvictable, withEvicted *prometheus.GaugeVec
	updatable, withUpdatable, withUpdated             *prometheus.GaugeVec

	evicted, updated                           *vpaCounter
	failedEvictions, failedResizes, infeasible *prometheus.CounterVec

	latency   *prometheus.HistogramVec
	heartbeat *prometheus.CounterVec
	skipped   *prometheus.GaugeVec

	reverts      *prometheus.CounterVec
	deferred     *prometheus.CounterVec
	observed     *prometheus.GaugeVec // without labels: shown after the first rollout
	fuses        *prometheus.GaugeVec // by SizingPolicy
	recordErrors *prometheus.CounterVec
	revertErrors *prometheus.CounterVec
	missing      *prometheus.CounterVec

	// By mode, On or DryRun. Shown after the first sharing round.
	sharedHeadroom, sharedCores, sharedBytes, sharedPods *prometheus.GaugeVec
	sharedEvictions                                      *prometheus.CounterVec
	// Nodes, without labels. Shown after the first round of --node-load-taint.
	overloaded, tainted, capped, unknownLoad *prometheus.GaugeVec
	loadErrors                               *prometheus.CounterVec

	cacheAges  cacheAges
	cacheSizes *cachesize.Sizes
	writes     *client.WriteLimiter

	seen   sync.Map // cache.ObjectName -> vpaState, in the last iteration
	queued sync.Map // cache.ObjectName of VPAs counted since the last DrainQueued
}

type vpaState struct {
	pods int
	mode vpav1.UpdateMode
}

func newMetrics(registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: "vpa", Subsystem: "updater", Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Namespace: "vpa", Subsystem: "updater", Name: name, Help: help}, labels)
	}
	nodes := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: "loadline", Subsystem: "node", Name: name, Help: help}, nil)
	}
	shared := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: "loadline", Subsystem: "sharing", Name: name, Help: help}, []string{"mode"})
	}
	const size, mode, name, namespace, reason = "vpa_size_log2", "update_mode", "vpa_name", "vpa_namespace", "reason"
	m := &metrics{
		controlled:      gauge("controlled_pods_total", "Pods that a VPA controls.", size, mode),
		evictable:       gauge("evictable_pods_total", "Pods that the updater plans to evict.", size, mode),
		withEvictable:   gauge("vpas_with_evictable_pods_total", "VPAs with a pod that the updater plans to evict.", size, mode),
		withEvicted:     gauge("vpas_with_evicted_pods_total", "VPAs with a pod that was evicted in the last iteration.", size, mode),
		updatable:       gauge("in_place_updatable_pods_total", "Pods that the updater plans to resize in place.", size),
		withUpdatable:   gauge("vpas_with_in_place_updatable_pods_total", "VPAs with a pod that the updater plans to resize in place.", size),
		withUpdated:     gauge("vpas_with_in_place_updated_pods_total", "VPAs with a pod that was resized in the last iteration.", size),
		evicted:         newVPACounter("evicted_pods_total", "Pods evicted.", true),
		updated:         newVPACounter("in_place_updated_pods_total", "Pods resized in place.", false),
		failedEvictions: counter("failed_eviction_attempts_total", "Failed attempts to evict a pod.", size, mode, reason, name, namespace),
		failedResizes:   counter("failed_in_place_update_attempts_total", "Failed attempts to resize a pod in place.", size, reason, name, namespace),
		infeasible:      counter("in_place_infeasible_skip_pods_total", "Pods skipped because their node refused the resize before, counted in each iteration.", size, name, namespace),
		latency: auto.NewHistogramVec(prometheus.HistogramOpts{Namespace: "vpa", Subsystem: "updater", Name: "execution_latency_seconds",
			Help:    "Duration of the steps of an iteration.",
			Buckets: []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120, 150, 240, 300}}, []string{"step"}),
		heartbeat: counter("admission_controller_status_invalid_total", "Iterations skipped because the status Lease of the admission controller was missing or stale.", reason),
		skipped: auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: "loadline", Subsystem: "updater", Name: "skipped_pods",
			Help: "Pods skipped in the last iteration, by reason."}, []string{reason}),
		reverts: auto.NewCounterVec(prometheus.CounterOpts{Namespace: "loadline", Subsystem: "updater", Name: "reverts_total",
			Help: "Reverted changes of pods under a SizingPolicy, by harm."}, []string{reason, name, namespace}),
		deferred: auto.NewCounterVec(prometheus.CounterOpts{Namespace: "loadline", Subsystem: "updater", Name: "deferred_reverts_total",
			Help: "Reverts of changes under a SizingPolicy that the node did not carry out in time, by harm of the change."}, []string{reason, name, namespace}),
		observed: auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: "loadline", Subsystem: "updater", Name: "observed_pods",
			Help: "Pods with a change under observation in the last iteration."}, nil),
		fuses: auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: "loadline", Subsystem: "policy", Name: "fuse_tripped",
			Help: "1 if the fuse of the SizingPolicy has tripped for all or some namespaces, else 0."}, []string{"policy"}),
		recordErrors: auto.NewCounterVec(prometheus.CounterOpts{Namespace: "loadline", Subsystem: "updater", Name: "record_errors_total",
			Help: "SizingRecords that could not be written."}, nil),
		revertErrors: auto.NewCounterVec(prometheus.CounterOpts{Namespace: "loadline", Subsystem: "updater", Name: "revert_errors_total",
			Help: "Failed attempts to revert a change. Each is retried."}, nil),
		missing: auto.NewCounterVec(prometheus.CounterOpts{Namespace: "loadline", Subsystem: "updater", Name: "evidence_missing_total",
			Help: "Pods under observation for which a source returned incomplete data."}, []string{"source"}),
		overloaded:  nodes("overloaded_nodes", "Nodes with a load above --node-load-threshold."),
		tainted:     nodes("tainted_nodes", "Nodes with the taint of overloaded nodes, or that would have it in a dry run."),
		capped:      nodes("capped_nodes", "Overloaded nodes without the taint because of --node-load-max-tainted."),
		unknownLoad: nodes("unknown_load_nodes", "Nodes with unknown load."),
		loadErrors: auto.NewCounterVec(prometheus.CounterOpts{Namespace: "loadline", Subsystem: "node", Name: "load_errors_total",
			Help: "Rounds with a failed query of node loads or a failed read or write of nodes, by source."}, []string{"source"}),
		sharedHeadroom: shared("headroom_cores", "CPU headroom that sharing pods divide, summed over nodes."),
		sharedCores:    shared("saved_cores", "CPU saved by sharing: the peaks of sharing pods minus their requests."),
		sharedBytes:    shared("saved_bytes", "Memory saved by sharing: the peaks of sharing pods minus their requests."),
		sharedPods:     shared("pods", "Pods that share the headroom of their nodes."),
		sharedEvictions: auto.NewCounterVec(prometheus.CounterOpts{Namespace: "loadline", Subsystem: "sharing", Name: "evictions_total",
			Help: "Pods evicted, or to be evicted in mode DryRun, because the sharing pods of their node need more than it has."}, []string{"mode"}),
		cacheSizes: cachesize.New(registry), writes: client.NewWriteLimiter(client.UpdaterWrites, registry),
	}
	registry.MustRegister(m.evicted, m.updated, &m.cacheAges)
	return m
}

type stopwatch struct {
	latency     *prometheus.HistogramVec
	begin, last time.Time
}

func (m *metrics) Stopwatch() *stopwatch {
	now := time.Now()
	return &stopwatch{m.latency, now, now}
}

func (s *stopwatch) Step(name string) {
	now := time.Now()
	s.latency.WithLabelValues(name).Observe(now.Sub(s.last).Seconds())
	s.last = now
}

func (s *stopwatch) Total() {
	s.latency.WithLabelValues("total").Observe(time.Since(s.begin).Seconds())
}

// score counts the actions of one iteration for one VPA.
type score struct {
	Name               cache.ObjectName
	Mode               vpav1.UpdateMode
	Pods               int
	Evictable, Evicted int
	Updatable, Resized int
	Refused            bool // an eviction was refused
	Waiting            int  // pods waiting until another pod of their owner is back
}

func (s *score) size() string { return strconv.Itoa(sizeOf(s.Pods)) }

func sizeOf(pods int) int { return min(max(bits.Len(uint(max(pods, 0)))-1, 0), sizeClasses-1) }

// InitCounters makes the counters of a VPA visible before its first change.
func (m *metrics) InitCounters(s *score) {
	now := vpaState{s.Pods, s.Mode}
	if previous, known := m.seen.Load(s.Name); known && previous == now {
		return
	}
	m.seen.Store(s.Name, now)
	m.evicted.Add(s.Name, s.Pods, s.Mode, 0)
	m.updated.Add(s.Name, s.Pods, s.Mode, 0)
}

func (m *metrics) Evicted(s *score) {
	s.Evicted++
	m.evicted.Add(s.Name, s.Pods, s.Mode, 1)
}

func (m *metrics) Resized(s *score) {
	s.Resized++
	m.updated.Add(s.Name, s.Pods, s.Mode, 1)
}

func (m *metrics) Infeasible(s *score) {
	m.infeasible.WithLabelValues(s.size(), s.Name.Name, s.Name.Namespace).Inc()
}

func (m *metrics) HeartbeatMissing(reason string) { m.heartbeat.WithLabelValues(reason).Inc() }

func (m *metrics) Reverted(vpa cache.ObjectName, harm rollout.Harm) {
	m.reverts.WithLabelValues(string(harm), vpa.Name, vpa.Namespace).Inc()
	m.queued.Store(vpa, nil) // after the count: DrainQueued may run in between
}

func (m *metrics) RevertDeferred(vpa cache.ObjectName, harm rollout.Harm) {
	m.deferred.WithLabelValues(string(harm), vpa.Name, vpa.Namespace).Inc()
	m.queued.Store(vpa, nil) // after the count: DrainQueued may run in between
}

func (m *metrics) RecordFailed() { m.recordErrors.WithLabelValues().Inc() }

func (m *metrics) RevertFailed() { m.revertErrors.WithLabelValues().Inc() }

func (m *metrics) EvidenceMissing(pods int) {
	m.missing.WithLabelValues("prometheus").Add(float64(pods))
}

func (m *metrics) Observed(pods int) { m.observed.WithLabelValues().Set(float64(pods)) }

func (m *metrics) Fuses(policies map[string]*policies.Limits) {
	m.fuses.Reset()
	for name, limits := range policies {
		tripped := 0.0
		if !limits.Trip.At.IsZero() {
			tripped = 1
		}
		m.fuses.WithLabelValues(name).Set(tripped)
	}
}

func sharingMode(active bool) string {
	if active {
		return "On"
	}
	return "DryRun"
}

// Shared publishes the result of a sharing round, and counts pods that newly would leave their
// nodes. Mode On is shown only with pods, mode DryRun with pods or without mode On.
func (m *metrics) Shared(round *shares.Round, newEvictions int) {
	m.SharingEnded()
	dry := true
	for _, active := range [...]bool{true, false} {
		var headroom, cores, bytes float64
		pods := 0
		for _, n := range round.Nodes {
			if n.Active != active {
				continue
			}
			headroom += n.Headroom[resources.CPU] / 1000
			cores += n.Saved[resources.CPU] / 1000
			bytes += n.Saved[resources.Memory]
			pods += n.Pods
		}
		if pods == 0 && (active || !dry) {
			continue
		}
		dry = dry && !active
		mode := sharingMode(active)
		m.sharedHeadroom.WithLabelValues(mode).Set(headroom)
		m.sharedCores.WithLabelValues(mode).Set(cores)
		m.sharedBytes.WithLabelValues(mode).Set(bytes)
		m.sharedPods.WithLabelValues(mode).Set(float64(pods))
	}
	m.sharedEvictions.WithLabelValues(sharingMode(false)).Add(float64(newEvictions))
}

func (m *metrics) SharingEvicted() { m.sharedEvictions.WithLabelValues(sharingMode(true)).Inc() }

func (m *metrics) SharingEnded() {
	for _, g := range []*prometheus.GaugeVec{m.sharedHeadroom, m.sharedCores, m.sharedBytes, m.sharedPods} {
		g.Reset()
	}
}

func (m *metrics) NodeLoad(c nodeload.Counts) {
	m.overloaded.WithLabelValues().Set(float64(c.Overloaded))
	m.tainted.WithLabelValues().Set(float64(c.Tainted))
	m.capped.WithLabelValues().Set(float64(c.Capped))
	m.unknownLoad.WithLabelValues().Set(float64(c.Unknown))
}

func (m *metrics) NodeLoadFailed(source string) { m.loadErrors.WithLabelValues(source).Inc() }

// countWaiting counts waiting pods as failed attempts if all evictions of the VPA were refused. The
// reference updater tries each of them, and a budget that refuses one refuses all.
func (m *metrics) countWaiting(scores []*score) {
	for _, s := range scores {
		for range s.Waiting {
			if s.Refused && s.Evicted == 0 {
				m.FailedEviction(s, evictionError)
			}
		}
	}
}

// Reasons of failed evictions, named as in the reference updater.
const (
	evictionError       = "EvictionError"
	evictionRateLimited = "EvictionRateLimiterWaitFailed"
)

func (m *metrics) FailedEviction(s *score, reason string) {
	m.failedEvictions.WithLabelValues(s.size(), string(s.Mode), reason, s.Name.Name, s.Name.Namespace).Inc()
}

func (m *metrics) FailedResize(s *score, reason string) {
	m.failedResizes.WithLabelValues(s.size(), reason, s.Name.Name, s.Name.Namespace).Inc()
}

// BoostRemoved counts an attempt to remove a startup boost, by the last size of the VPA.
func (m *metrics) BoostRemoved(vpa cache.ObjectName, err error) {
	if vpa.Name != "" {
		defer m.queued.Store(vpa, nil)
	}
	s := &score{Name: vpa}
	if previous, known := m.seen.Load(vpa); known {
		s.Pods = previous.(vpaState).pods
	}
	if err != nil {
		m.FailedResize(s, "UnboostError")
		return
	}
	m.updated.Add(s.Name, s.Pods, s.Mode, 1)
}

// DrainQueued adds the VPAs with counts from queues to a set. They may have been deleted since.
func (m *metrics) DrainQueued(to map[cache.ObjectName]bool) {
	m.queued.Range(func(vpa, _ any) bool {
		to[vpa.(cache.ObjectName)] = true
		m.queued.Delete(vpa)
		return true
	})
}

func (m *metrics) Forget(vpa cache.ObjectName) {
	m.seen.Delete(vpa)
	m.evicted.Forget(vpa)
	m.updated.Forget(vpa)
	labels := prometheus.Labels{"vpa_name": vpa.Name, "vpa_namespace": vpa.Namespace}
	for _, c := range []*prometheus.CounterVec{m.failedEvictions, m.failedResizes, m.infeasible, m.reverts, m.deferred} {
		c.DeletePartialMatch(labels)
	}
}

// Publish sets gauges. Gauges by size alone show all sizes, gauges by mode only pairs that occur.
func (m *metrics) Publish(scores []*score, skipped map[reason.Reason]int) {
	m.countWaiting(scores)
	for _, g := range []*prometheus.GaugeVec{m.controlled, m.evictable, m.withEvictable, m.withEvicted} {
		g.Reset()
	}
	var updatable, withUpdatable, withUpdated [sizeClasses]int
	type class struct {
		size int
		mode vpav1.UpdateMode
	}
	type sum struct{ pods, evictable, withEvictable, withEvicted int }
	sums := map[class]sum{}
	for _, s := range scores {
		size := sizeOf(s.Pods)
		total := sums[class{size, s.Mode}]
		total.pods += s.Pods
		total.evictable += s.Evictable
		total.withEvictable += min(s.Evictable, 1)
		total.withEvicted += min(s.Evicted, 1)
		sums[class{size, s.Mode}] = total
		updatable[size] += s.Updatable
		withUpdatable[size] += min(s.Updatable, 1)
		withUpdated[size] += min(s.Resized, 1)
	}
	for c, total := range sums {
		size, mode := strconv.Itoa(c.size), string(c.mode)
		m.controlled.WithLabelValues(size, mode).Set(float64(total.pods))
		m.evictable.WithLabelValues(size, mode).Set(float64(total.evictable))
		m.withEvictable.WithLabelValues(size, mode).Set(float64(total.withEvictable))
		m.withEvicted.WithLabelValues(size, mode).Set(float64(total.withEvicted))
	}
	for size := range sizeClasses {
		label := strconv.Itoa(size)
		m.updatable.WithLabelValues(label).Set(float64(updatable[size]))
		m.withUpdatable.WithLabelValues(label).Set(float64(withUpdatable[size]))
		m.withUpdated.WithLabelValues(label).Set(float64(withUpdated[size]))
	}
	for _, r := range reason.SkipReasons() {
		m.skipped.WithLabelValues(r.String()).Set(float64(skipped[r]))
	}
}

// cacheAges collects ages on every scrape, so that the gauge rises while an iteration hangs.
type cacheAges struct {
	ages atomic.Pointer[func() map[string]time.Duration] // by resource; nil: this replica does not lead
}

var cacheAge = prometheus.NewDesc("loadline_updater_cache_age_seconds",
	"Time since the watch of a resource last received anything, bookmarks included. Above 180 the updater evicts and restarts no pods.",
	[]string{"resource"}, nil)

func (c *cacheAges) SetSource(ages func() map[string]time.Duration) { c.ages.Store(&ages) }

func (c *cacheAges) Describe(to chan<- *prometheus.Desc) { to <- cacheAge }

func (c *cacheAges) Collect(to chan<- prometheus.Metric) {
	ages := c.ages.Load()
	if ages == nil {
		return
	}
	for resource, age := range (*ages)() {
		to <- prometheus.MustNewConstMetric(cacheAge, prometheus.GaugeValue, age.Seconds(), resource)
	}
}
