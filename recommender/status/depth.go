package status

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Depth publishes the number of VPAs with a recommendation by the history behind
// it. The label of gauge is history: a step without blanks, such as "1day".
func (p *Publisher) Depth(gauge *prometheus.GaugeVec) {
	var counts [len(Steps)]int
	for _, h := range p.handled {
		if h.history >= 0 && h.vpa.Recommended {
			counts[h.history]++
		}
	}
	for step, n := range counts {
		gauge.WithLabelValues(strings.ReplaceAll(Steps[step].Name, " ", "")).Set(float64(n))
	}
}
