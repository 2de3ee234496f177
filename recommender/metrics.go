package recommender

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/policies"
	"loadline.dev/loadline/recommender/recommend"
)

// Step labels of the execution latency.
const (
	stepVPAs        = "LoadVPAs"
	stepPods        = "LoadPods"
	stepMetrics     = "LoadMetrics"
	stepRemoved     = "DeleteRemovedPods"
	stepUpdate      = "UpdateVPAs"
	stepCheckpoints = "MaintainCheckpoints"
	stepCollect     = "GarbageCollect"
	stepPolicies    = "Policies" // runs concurrently with iterations
	stepTotal       = "total"
)

type metrics struct {
	sizes              *cachesize.Sizes
	writes             *client.WriteLimiter
	objects            *prometheus.GaugeVec
	latency            prometheus.Histogram
	execution          *prometheus.HistogramVec
	series             prometheus.Gauge
	responses          *prometheus.CounterVec
	prometheusRequests *prometheus.CounterVec
	prometheusDuration *prometheus.HistogramVec
	resources          *prometheus.CounterVec
	quality            *recommend.Quality

	samples        *prometheus.CounterVec
	historySamples *prometheus.CounterVec
	ooms           *prometheus.CounterVec
	statuses       *prometheus.CounterVec
	checkpoints    *prometheus.CounterVec
	panics         *prometheus.CounterVec
	depth          *prometheus.GaugeVec
	rising         prometheus.Gauge
	limited        *prometheus.GaugeVec
	recipes        *prometheus.GaugeVec
	history        *recommend.LoadingGauge
	policies       *policies.Metrics
}

func newMetrics(registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		sizes: cachesize.New(registry), writes: client.NewWriteLimiter(client.RecommenderWrites, registry),
		objects: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "vpa_recommender_vpa_objects_count",
			Help: "VPA objects served by this recommender.",
		}, []string{"update_mode", "has_recommendation", "api", "matches_pods", "unsupported_config"}),
		latency: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "vpa_recommender_recommendation_latency_seconds",
			Help:    "Time from the creation of a VPA to its first recommendation.",
			Buckets: []float64{1, 2, 5, 7.5, 10, 20, 30, 40, 50, 60, 90, 120, 150, 180, 240, 300, 600, 900, 1800},
		}),
		execution: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "vpa_recommender_execution_latency_seconds",
			Help:    "Duration of each step of an iteration.",
			Buckets: []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120, 150, 240, 300},
		}, []string{"step"}),
		series: auto.NewGauge(prometheus.GaugeOpts{
			Name: "vpa_recommender_aggregate_container_states_count",
			Help: "Aggregated histories, one for each namespace, container name and set of pod labels.",
		}),
		responses: counter("vpa_recommender_metric_server_responses", "Responses of the metrics API.", "is_error", "client_name"),
		prometheusRequests: counter("vpa_recommender_prometheus_client_api_requests_count",
			"Requests to Prometheus.", "code", "method"),
		prometheusDuration: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "vpa_recommender_prometheus_client_api_requests_duration_seconds",
			Help:    "Duration of requests to Prometheus.",
			Buckets: []float64{.01, .02, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1, 2, 5, 10, 20, 30, 60, 120, 300},
		}, []string{"code", "method"}),
		resources: counter("vpa_resources_get_resources_count", "Sources of container resources.", "source"),
		quality:   recommend.NewQuality(registry),

		samples: counter("loadline_recommender_samples_total",
			`Usage samples by result.`, "result"),
		historySamples: counter("loadline_recommender_history_samples_total",
			`History samples from Prometheus by result.`, "result"),
		ooms: counter("loadline_recommender_ooms_total",
			`Out-of-memory kills and evictions by result.`, "result"),
		statuses:    counter("loadline_recommender_status_writes_total", "Status patches of VPAs, by result.", "result"),
		checkpoints: counter("loadline_recommender_checkpoint_writes_total", "Checkpoint writes, deletions and rejected checkpoints, by result.", "result"),
		panics:      counter("loadline_recommender_panics_total", "Recovered panics by step of an iteration. The affected VPA missed the step.", "step"),
		depth: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "loadline_recommender_vpas_by_history",
			Help: "VPAs with a recommendation, by the minimum length of its history.",
		}, []string{"history"}),
		rising: auto.NewGauge(prometheus.GaugeOpts{
			Name: "loadline_recommender_vpas_with_memory_growth",
			Help: "VPAs with a container whose memory usage grows daily, as with a leak.",
		}),
		limited: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "loadline_recommender_limited_vpas",
			Help: `VPAs that lack recommendations because of a limit: "containers" of a VPA, "vpas" of a pod, "status_bytes", or "namespace_bytes" of all VPAs in the caches.`,
		}, []string{"limit"}),
		recipes: recommend.NewSketchGauge(registry),
		history: recommend.NewLoadingGauge(registry), policies: policies.NewMetrics(registry),
	}
}

func (m *metrics) observeStep(step string, start time.Time) {
	m.execution.WithLabelValues(step).Observe(time.Since(start).Seconds())
}

func (m *metrics) observePrometheus(code, method string, took time.Duration) {
	m.prometheusRequests.WithLabelValues(code, method).Inc()
	m.prometheusDuration.WithLabelValues(code, method).Observe(took.Seconds())
}

type vpaState struct {
	mode                                        vpav1.UpdateMode
	hasRecommendation, matchesPods, unsupported bool
}

// countVPAs sets the number of VPAs for each combination of labels, also if it is 0.
func countVPAs(gauge *prometheus.GaugeVec, vpas []*model.VPA) {
	counts := map[vpaState]int{}
	for _, v := range vpas {
		counts[vpaState{convert.Mode(v.Object), v.Published.Recommended, v.Pods() > 0, v.Unsupported()}]++
	}
	for _, mode := range []vpav1.UpdateMode{
		vpav1.UpdateModeOff, vpav1.UpdateModeInitial, vpav1.UpdateModeRecreate,
		vpav1.UpdateModeAuto, vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeInPlace,
	} {
		for bits := range 8 {
			s := vpaState{mode, bits&1 != 0, bits&2 != 0, bits&4 != 0}
			for _, api := range []string{"v1beta1", "v1beta2", "v1"} {
				n := 0
				if api == "v1" { // the only served version
					n = counts[s]
				}
				gauge.WithLabelValues(string(mode), strconv.FormatBool(s.hasRecommendation), api,
					strconv.FormatBool(s.matchesPods), strconv.FormatBool(s.unsupported)).Set(float64(n))
			}
		}
	}
}

func countSources(counter *prometheus.CounterVec, pod *corev1.Pod) {
	count := func(containers []corev1.Container, statuses []corev1.ContainerStatus, inStatus, inSpec string) {
		for i := range containers {
			source := inSpec
			for j := range statuses {
				if statuses[j].Name == containers[i].Name && statuses[j].Resources != nil {
					source = inStatus
				}
			}
			counter.WithLabelValues(source).Inc()
		}
	}
	count(pod.Spec.Containers, pod.Status.ContainerStatuses, "Pod.Status.ContainerStatuses", "Pod.Spec.Containers")
	count(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, "Pod.Status.InitContainerStatuses", "Pod.Spec.InitContainers")
}
