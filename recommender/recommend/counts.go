package recommend

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/model"
)

// CountLimited publishes the number of VPAs that a limit affects, by limit.
func CountLimited(gauge *prometheus.GaugeVec, vpas []*model.VPA) {
	counts := map[string]int{"containers": 0, "vpas": 0, "status_bytes": 0, "namespace_bytes": 0}
	for _, v := range vpas {
		if v.OmittedMessage() != "" {
			counts["containers"]++
		}
		if v.Outranked() {
			counts["vpas"]++
		}
		if v.Published.TooLarge {
			counts["status_bytes"]++
		}
		if client.VPARefused(v.Object) {
			counts["namespace_bytes"]++
		}
	}
	for limit, n := range counts {
		gauge.WithLabelValues(limit).Set(float64(n))
	}
}

// CountRising publishes the number of VPAs of which a container uses more memory from day to day.
func CountRising(gauge prometheus.Gauge, vpas []*model.VPA) {
	n := 0
	for _, v := range vpas {
		if v.Published.Rising {
			n++
		}
	}
	gauge.Set(float64(n))
}

// CountByHistory publishes the number of VPAs with a recommendation by the history behind
// it. The label of gauge is history: a step without blanks, such as "1day".
func CountByHistory(gauge *prometheus.GaugeVec, vpas []*model.VPA) {
	var counts [len(convert.HistorySteps)]int
	for _, v := range vpas {
		if v.Published.HistoryStep > 0 && v.Published.Recommended {
			counts[v.Published.HistoryStep-1]++
		}
	}
	for step, n := range counts {
		gauge.WithLabelValues(strings.ReplaceAll(convert.HistorySteps[step].Name, " ", "")).Set(float64(n))
	}
}
