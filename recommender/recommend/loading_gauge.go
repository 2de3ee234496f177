package recommend

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// LoadingGauge is the state of history that is loaded from elsewhere, perhaps while
// the recommender works already. Complete is safe for concurrent use. The zero value
// is of use only in tests: nothing is loaded, and all is complete.
type LoadingGauge struct {
	loading atomic.Bool
	total   int

	ratio, complete, pending prometheus.Gauge
}

// NewLoadingGauge returns one that is complete until Begin, and registers its metrics.
func NewLoadingGauge(registry prometheus.Registerer) *LoadingGauge {
	l := &LoadingGauge{
		ratio: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "loadline_recommender_history_progress_ratio",
			Help: "How much of the history from before the start is loaded, from 0 to 1.",
		}),
		complete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "loadline_recommender_history_complete",
			Help: "1 when all history from before the start is loaded, or none is to be. 0 also while Prometheus has no usage at all, until a day was seen live. While it is 0 no published target is lowered.",
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "loadline_recommender_history_pending_vpas",
			Help: "VPAs that wait for history from Prometheus after the load at the start: new VPAs, VPAs with a new recipe, and VPAs with new containers.",
		}),
	}
	registry.MustRegister(l.ratio, l.complete, l.pending)
	l.set(false, 1)
	return l
}

// Begin says that history is going to be loaded, in total parts of about equal
// work; from now on it is not complete.
func (l *LoadingGauge) Begin(total int) {
	l.total = total
	l.Loaded(0)
}

// Loaded says that so many parts are loaded, and all others are still to come.
func (l *LoadingGauge) Loaded(parts int) { l.set(true, float64(parts)/float64(max(l.total, 1))) }

// Done says that all history is loaded. One that failed for good is not done: it
// stays incomplete.
func (l *LoadingGauge) Done() { l.set(false, 1) }

// Pending sets the number of VPAs that wait for history after the load at the start.
func (l *LoadingGauge) Pending(vpas int) {
	if l.pending != nil {
		l.pending.Set(float64(vpas))
	}
}

// Complete reports whether all history is loaded.
func (l *LoadingGauge) Complete() bool { return !l.loading.Load() }

func (l *LoadingGauge) set(loading bool, ratio float64) {
	l.loading.Store(loading)
	if l.ratio != nil {
		l.ratio.Set(min(ratio, 1))
		l.complete.Set(map[bool]float64{false: 1}[loading])
	}
}
