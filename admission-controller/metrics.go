package admission

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/pkg/kube/cachesize"
)

const labelPod = "Pod"

// metrics holds the collectors. Names, labels and buckets of vpa_ metrics match the reference VPA.
type metrics struct {
	sizes     *cachesize.Sizes
	pods      *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	execution *prometheus.HistogramVec

	reviews  *prometheus.HistogramVec
	problems *prometheus.CounterVec
	notAfter *prometheus.GaugeVec
	daysLeft *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	auto := promauto.With(registerer)
	return &metrics{
		sizes: cachesize.New(registerer),
		pods: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "vpa_admission_controller_admission_pods_total",
			Help: "Pods reviewed by the webhook, by whether they were changed.",
		}, []string{"applied"}),
		latency: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "vpa_admission_controller_admission_latency_seconds",
			Help:    "Time an admission request took, by outcome and resource.",
			Buckets: []float64{.01, .02, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1, 2, 5, 10, 20, 30, 60, 120, 300},
		}, []string{"status", "resource"}),
		execution: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "vpa_admission_controller_execution_latency_seconds",
			Help:    "Time spent in the steps of an admission request.",
			Buckets: []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120, 150, 240, 300},
		}, []string{"step"}),
		reviews: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "loadline_admission_controller_review_duration_seconds",
			Help:    "Time an admission request took, in fine buckets.",
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .05, .2, 1},
		}, []string{"resource"}),
		problems: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "loadline_admission_controller_problems_total",
			Help: "Admission requests with a problem, by cause.",
		}, []string{"cause"}),
		notAfter: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "loadline_admission_controller_certificate_expiry_timestamp_seconds",
			Help: "When the serving certificate expires, as a Unix time.",
		}, nil),
		daysLeft: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "loadline_admission_controller_certificate_days_left",
			Help: "Days until the serving certificate expires; negative when it has.",
		}, nil), // absent until the first certificate is served
	}
}

func (m *metrics) Request(status, resource string, took time.Duration) {
	m.latency.WithLabelValues(status, resource).Observe(took.Seconds())
	m.reviews.WithLabelValues(resource).Observe(took.Seconds())
	if resource == labelPod {
		m.pods.WithLabelValues(strconv.FormatBool(status == "applied")).Inc()
	}
}

func (m *metrics) Step(step string, took time.Duration) {
	m.execution.WithLabelValues(step).Observe(took.Seconds())
}

func (m *metrics) Problem(cause server.Cause) { m.problems.WithLabelValues(string(cause)).Inc() }

func (m *metrics) Certificate(end, now time.Time) {
	m.notAfter.WithLabelValues().Set(float64(end.Unix()))
	m.daysLeft.WithLabelValues().Set(end.Sub(now).Hours() / 24)
}
