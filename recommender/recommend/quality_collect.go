package recommend

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"loadline.dev/loadline/pkg/core/resources"
)

// qualityDescriptions are those of the metrics.
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
			"Time from the pass that first saw the present target, after the start, to the last pass."),
		complete: desc("history_completeness_ratio",
			"History behind the recommendation / the longest that is kept, at most 1. History is the time from the first to the last CPU sample, or their number at one a minute if that is less."),
		change: desc("last_change_ratio",
			"Present target / the one before - 1. Absent until the target changes."),
		burst: desc("burst_factor",
			"Factor by which the recipe raises the recommendation for bursts, 1 without one. Only with recipes of the family attune."),
		confidence: desc("confidence_ratio",
			"Confidence of the recipe in its history, from 0 to 1. Only with recipes of the family attune."),
	}
}

// Describe sends what is always the same of the metrics.
func (w *WorkloadQuality) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.target, w.slack, w.above, w.peak, w.kills, w.age, w.complete, w.change, w.burst, w.confidence} {
		to <- d
	}
}

// Collect sends the metrics of all workloads. It holds up a pass for no longer
// than it takes to copy the numbers of one VPA.
func (w *WorkloadQuality) Collect(to chan<- prometheus.Metric) {
	w.mu.Lock()
	known := w.known
	w.mu.Unlock()
	var containers []containerRecord
	for _, one := range known {
		w.mu.Lock()
		containers = append(containers[:0], one.containers...)
		now := w.now
		w.mu.Unlock()
		for i := range containers {
			c := &containers[i]
			for k := range resources.Kind(resources.Kinds) {
				r := &c.records[k]
				if !r.published {
					continue
				}
				labels := []string{one.namespace, one.name, c.name, k.String()}
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

// collect sends what a record says. There is no ratio where there is nothing to
// compare: without samples, or to a target of 0.
func (d *qualityDescriptions) collect(r *kindRecord, k resources.Kind, send func(*prometheus.Desc, float64)) {
	target, unit := float64(r.target), 1.0
	if k == resources.CPU {
		unit = 1000 // millicores in a core
	}
	send(d.target, target/unit)
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
