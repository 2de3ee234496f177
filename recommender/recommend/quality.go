package recommend

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

// Quality compares usage with recommendations, in cores and bytes. Of each pair of histograms,
// "over" has the recommendation minus the usage, "under" the reverse.
type Quality struct {
	Workloads *WorkloadQuality // nil: disabled

	relative    *prometheus.HistogramVec
	missing     *prometheus.CounterVec
	over, under [resources.Kinds]*prometheus.HistogramVec
	recommended [resources.Kinds]*prometheus.HistogramVec
	changes     *prometheus.HistogramVec
}

// NewQuality creates and registers the metrics.
func NewQuality(registry prometheus.Registerer) *Quality {
	relative := []float64{-1, -.75, -.5, -.25, -.1, -.05, -.025, -.01, -.005, -.0025, -.001, 0,
		.001, .0025, .005, .01, .025, .05, .1, .25, .5, .75, 1, 2.5, 5, 10, 25, 50, 100}
	cores := prometheus.ExponentialBuckets(0.01, 2, 17)
	bytes := prometheus.ExponentialBuckets(1e6, 2, 17)
	auto := promauto.With(registry)
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return auto.NewHistogramVec(prometheus.HistogramOpts{Name: "vpa_quality_" + name, Help: help, Buckets: buckets}, labels)
	}
	return &Quality{
		relative: histogram("usage_recommendation_relative_diffs", "Usage minus recommendation, as a fraction of the recommendation.",
			relative, "update_mode", "resource", "is_oom"),
		missing: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "vpa_quality_usage_sample_missing_recommendation_count",
			Help: "Usage samples of containers without recommendation.",
		}, []string{"update_mode", "resource", "is_oom"}),
		over: [resources.Kinds]*prometheus.HistogramVec{
			histogram("cpu_recommendation_over_usage_diffs_cores", "Recommended CPU minus usage, where positive.", cores, "update_mode", "recommendation_missing"),
			histogram("mem_recommendation_over_usage_diffs_bytes", "Recommended memory minus usage, where positive.", bytes, "update_mode", "recommendation_missing", "is_oom"),
		},
		under: [resources.Kinds]*prometheus.HistogramVec{
			histogram("cpu_recommendation_lower_equal_usage_diffs_cores", "CPU usage minus recommendation, where not negative.", cores, "update_mode", "recommendation_missing"),
			histogram("mem_recommendation_lower_equal_usage_diffs_bytes", "Memory usage minus recommendation, where not negative.", bytes, "update_mode", "recommendation_missing", "is_oom"),
		},
		recommended: [resources.Kinds]*prometheus.HistogramVec{
			histogram("cpu_recommendations_cores", "CPU recommended at the time of a usage sample.", cores, "update_mode"),
			histogram("mem_recommendations_bytes", "Memory recommended at the time of a usage sample.", bytes, "update_mode", "is_oom"),
		},
		changes: histogram("relative_recommendation_changes", "Change of a recommendation as a fraction of the former one.",
			relative, "update_mode", "resource", "vpa_size_log2"),
	}
}

func inUnits(k resources.Kind, a resources.Amount) float64 {
	if k == resources.CPU {
		return float64(a) / 1000
	}
	return float64(a)
}

func modeOf(v *model.VPA) string {
	if p := v.Object.Spec.UpdatePolicy; p != nil && p.UpdateMode != nil {
		return string(*p.UpdateMode)
	}
	return ""
}

// Observe compares usage with the recommendation. It ignores a nil v and mode Off.
func (q *Quality) Observe(v *model.VPA, c usage.ContainerKey, k resources.Kind, used resources.Amount, oom bool) {
	if v == nil || v.Rules.For(c.Container).Off {
		return
	}
	if oom {
		q.Workloads.Killed(v, c.Container)
	} else {
		q.Workloads.Observe(v, c.Container, k, used)
	}
	mode, isOOM := modeOf(v), strconv.FormatBool(oom)
	recommended := v.Published.Uncapped[c.Container].Value(k)
	absent := recommended <= 0
	missing := strconv.FormatBool(absent)
	labels, amounts := []string{mode, missing}, []string{mode}
	if k == resources.Memory {
		labels, amounts = append(labels, isOOM), append(amounts, isOOM)
	}
	value := inUnits(k, used)
	if absent {
		q.missing.WithLabelValues(mode, k.String(), isOOM).Inc()
		q.under[k].WithLabelValues(labels...).Observe(value)
		return
	}
	want := inUnits(k, recommended)
	q.recommended[k].WithLabelValues(amounts...).Observe(want)
	if want > value {
		q.over[k].WithLabelValues(labels...).Observe(want - value)
	} else {
		q.under[k].WithLabelValues(labels...).Observe(value - want)
	}
	q.relative.WithLabelValues(mode, k.String(), isOOM).Observe((value - want) / want)
}

const maxSizeLabel = 20

// sizeLabel returns the binary logarithm of a number of pods, 0 for none.
func sizeLabel(pods int) string {
	if pods <= 0 {
		return "0"
	}
	return strconv.Itoa(min(bits.Len(uint(pods))-1, maxSizeLabel))
}

// RecordChange records the change of an uncapped target, once for each series of the container.
func (q *Quality) RecordChange(v *model.VPA, container string, now resources.List) {
	before := v.Published.Uncapped[container]
	for k := range resources.Kind(resources.Kinds) {
		is, ok := now.Get(k)
		was := before.Value(k)
		if !ok || was <= 0 {
			continue
		}
		change := float64(is)/float64(was) - 1
		if math.IsNaN(change) {
			continue
		}
		observer := q.changes.WithLabelValues(modeOf(v), k.String(), sizeLabel(v.Pods()))
		for range v.Series(container) {
			observer.Observe(change)
		}
	}
}

type qualityDescriptions struct {
	target, slack, above, peak, kills, age, complete, change, burst, confidence *prometheus.Desc
}

func describeQuality() qualityDescriptions {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("loadline_workload_"+name, help, []string{"namespace", "vpa", "container", "resource"}, nil)
	}
	return qualityDescriptions{
		target: desc("recommendation",
			"Published target, after capping, in cores or bytes."),
		slack: desc("slack_ratio",
			"Unused part of the target: (target - mean usage since the target changed) / target. Negative when the mean is above the target."),
		above: desc("samples_above_target_ratio",
			"Share of the usage samples since the target changed that are above it, from 0 to 1."),
		peak: desc("peak_ratio",
			"Highest usage sample since the target changed / target."),
		kills: desc("ooms_since_change",
			"Out-of-memory kills and evictions since the memory target changed."),
		age: desc("recommendation_age_seconds",
			"Time from the first iteration after the start that read the current target to the last iteration."),
		complete: desc("history_completeness_ratio",
			"History behind the recommendation / the maximum history, at most 1. History is the time from the first to the last CPU sample, or their number at one a minute if that is less."),
		change: desc("last_change_ratio",
			"Current target / previous target - 1. Absent until the target changes."),
		burst: desc("burst_factor",
			"Factor by which the recipe raises the recommendation for bursts, 1 without one. Only with recipes of the family attune."),
		confidence: desc("confidence_ratio",
			"Confidence of the recipe in its history, from 0 to 1. Only with recipes of the family attune."),
	}
}

// Describe sends the descriptions of the metrics.
func (w *WorkloadQuality) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.target, w.slack, w.above, w.peak, w.kills, w.age, w.complete, w.change, w.burst, w.confidence} {
		to <- d
	}
}

// Collect sends the metrics of all workloads. To not delay an iteration, it holds the lock for one
// VPA at a time.
func (w *WorkloadQuality) Collect(to chan<- prometheus.Metric) {
	w.mu.Lock()
	known := w.workloads
	w.mu.Unlock()
	var containers []containerRecord
	for _, workload := range known {
		w.mu.Lock()
		containers = append(containers[:0], workload.containers...)
		now := w.now
		w.mu.Unlock()
		for i := range containers {
			c := &containers[i]
			for k := range resources.Kind(resources.Kinds) {
				r := &c.records[k]
				if !r.published {
					continue
				}
				labels := []string{workload.namespace, workload.name, c.name, k.String()}
				send := func(d *prometheus.Desc, value float64) {
					to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
				}
				send(w.age, max(now.Sub(r.since), 0).Seconds())
				send(w.complete, c.complete)
				if c.insight {
					send(w.burst, c.insights[k].Burst)
					send(w.confidence, c.insights[k].Confidence)
				}
				w.collect(r, k, send)
			}
		}
	}
}

// collect omits ratios without samples or to a target of 0.
func (d *qualityDescriptions) collect(r *kindRecord, k resources.Kind, send func(*prometheus.Desc, float64)) {
	target := float64(r.target)
	send(d.target, inUnits(k, r.target))
	if k == resources.Memory {
		send(d.kills, float64(r.kills))
	}
	if !math.IsNaN(r.change) {
		send(d.change, r.change)
	}
	if r.samples == 0 {
		return
	}
	send(d.above, float64(r.above)/float64(r.samples))
	if target > 0 {
		send(d.slack, (target-r.sum/float64(r.samples))/target)
		send(d.peak, float64(r.peak)/target)
	}
}
