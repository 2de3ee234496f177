package recommend

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

// Quality are the metrics that compare usage with what was recommended for it.
// Amounts are in cores and bytes. Of the pairs of histograms, "over" holds how
// far the recommendation exceeds the usage, "under" how far the usage reaches or
// exceeds the recommendation.
type Quality struct {
	Workloads *WorkloadQuality // of each workload; nil: nobody wants them

	relative    *prometheus.HistogramVec
	missing     *prometheus.CounterVec
	over, under [resources.Kinds]*prometheus.HistogramVec
	recommended [resources.Kinds]*prometheus.HistogramVec
	changes     *prometheus.HistogramVec
}

// NewQuality builds the metrics and registers them.
func NewQuality(registry prometheus.Registerer) *Quality {
	relative := []float64{-1, -.75, -.5, -.25, -.1, -.05, -.025, -.01, -.005, -.0025, -.001, 0,
		.001, .0025, .005, .01, .025, .05, .1, .25, .5, .75, 1, 2.5, 5, 10, 25, 50, 100}
	cores := prometheus.ExponentialBuckets(0.01, 2, 17)
	bytes := prometheus.ExponentialBuckets(1e6, 2, 17)
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "vpa_quality_" + name, Help: help, Buckets: buckets}, labels)
	}
	q := &Quality{
		relative: histogram("usage_recommendation_relative_diffs", "Usage minus recommendation, as a fraction of the recommendation.",
			relative, "update_mode", "resource", "is_oom"),
		missing: prometheus.NewCounterVec(prometheus.CounterOpts{
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
	registry.MustRegister(q.relative, q.missing, q.changes)
	for k := range resources.Kinds {
		registry.MustRegister(q.over[k], q.under[k], q.recommended[k])
	}
	return q
}

// inUnits returns an amount in cores or bytes.
func inUnits(k resources.Kind, a resources.Amount) float64 {
	if k == resources.CPU {
		return float64(a) / 1000
	}
	return float64(a)
}

// modeOf is the label of a VPA's update mode: empty where it has none.
func modeOf(v *model.VPA) string {
	if p := v.Object.Spec.UpdatePolicy; p != nil && p.UpdateMode != nil {
		return string(*p.UpdateMode)
	}
	return ""
}

// Observe compares the usage of a container with the recommendation that its VPA
// had for it. Containers that no VPA controls, or that it leaves alone, do not
// count.
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

// largestSize is the highest label of the number of pods of a VPA.
const largestSize = 20

// sizeLabel is the label of a number of pods: its binary logarithm, 0 for none.
func sizeLabel(pods int) string {
	if pods <= 0 {
		return "0"
	}
	return strconv.Itoa(min(bits.Len(uint(pods))-1, largestSize))
}

// Changed records the change of the uncapped target of a container, once for
// each history behind it.
func (q *Quality) Changed(v *model.VPA, container string, now resources.List) {
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
