package compat

import (
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/metrics/admission"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/metrics/quality"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/metrics/recommender"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/metrics/resources"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/metrics/updater"
)

// metric is the part of a metric that dashboards depend on.
type metric struct {
	kind    string
	labels  []string
	buckets []float64
}

// The golden lists pin the metrics that the programs register. They must include all metrics of
// upstream, and all others must have Loadline's prefix.
func TestMetrics_IncludeUpstreamMetrics(t *testing.T) {
	registerUpstream()
	upstream := gathered(t)
	ours := map[string]metric{}
	for _, program := range []string{"recommender", "updater", "admission-controller"} {
		for name, m := range golden(t, "../../"+program+"/testdata/metrics.golden") {
			ours[name] = m
		}
	}
	require.Len(t, upstream, 34, "every metric of upstream must have been touched")
	for name, want := range upstream {
		require.Equal(t, want, ours[name], name)
		delete(ours, name)
	}
	for name := range ours {
		require.True(t, strings.HasPrefix(name, "loadline_"), "%s is not upstream's and lacks our prefix", name)
	}
}

// registerUpstream registers and touches upstream's metrics, because untouched ones are not
// gathered.
func registerUpstream() {
	recommender.Register()
	recommender.NewExecutionTimer().ObserveTotal()
	recommender.ObserveRecommendationLatency(time.Now())
	recommender.RecordAggregateContainerStatesCount(1)
	recommender.RecordMetricsServerResponse(errors.New("x"), "x")
	recommender.NewObjectCounter().Observe()
	fails := roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, nil })
	for _, counting := range []http.RoundTripper{recommender.NewPrometheusRoundTripperCounter(fails), recommender.NewPrometheusRoundTripperDuration(fails)} {
		request, _ := http.NewRequest(http.MethodGet, "http://x", nil)
		_, _ = counting.RoundTrip(request)
	}

	quality.Register()
	mode := upstreamv1.UpdateModeRecreate
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		quality.ObserveQualityMetrics(1, 2, false, name, &mode)
		quality.ObserveQualityMetrics(2, 1, false, name, &mode)
		quality.ObserveQualityMetricsRecommendationMissing(1, false, name, &mode)
		quality.ObserveRecommendationChange(corev1.ResourceList{name: resource.MustParse("1")}, corev1.ResourceList{name: resource.MustParse("2")}, &mode, 1)
	}
	resources.Register()
	resources.RecordGetResourcesCount(resources.ContainerStatus)

	updater.Register()
	updater.NewExecutionTimer().ObserveTotal()
	updater.InitCounters(1, "v", "n", mode)
	updater.AddEvictedPod(1, "v", "n", mode)
	updater.AddInPlaceUpdatedPod(1, "v", "n")
	updater.RecordFailedEviction(1, "v", "n", mode, "r")
	updater.RecordFailedInPlaceUpdate(1, "v", "n", "r")
	updater.RecordInPlaceInfeasibleCached(1, "v", "n")
	updater.RecordAdmissionControllerStatusInvalid("r")
	for _, gauge := range []*updater.SizeBasedGauge{updater.NewInPlaceUpdatablePodsCounter(), updater.NewVpasWithInPlaceUpdatablePodsCounter(), updater.NewVpasWithInPlaceUpdatedPodsCounter()} {
		gauge.Add(1, 1)
		gauge.Observe()
	}
	for _, gauge := range []*updater.UpdateModeAndSizeBasedGauge{updater.NewControlledPodsCounter(), updater.NewEvictablePodsCounter(), updater.NewVpasWithEvictablePodsCounter(), updater.NewVpasWithEvictedPodsCounter()} {
		gauge.Add(1, mode, 1)
		gauge.Observe()
	}

	admission.Register()
	admission.NewExecutionTimer().ObserveTotal()
	admission.OnAdmittedPod(true)
	admission.NewAdmissionLatency().Observe(admission.Applied, admission.Pod)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func gathered(t *testing.T) map[string]metric {
	families, err := prometheus.DefaultGatherer.Gather()
	require.NoError(t, err)
	found := map[string]metric{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "vpa_") {
			continue // of the Go runtime and the process
		}
		first := f.GetMetric()[0]
		m := metric{kind: strings.ToLower(f.GetType().String())}
		for _, l := range first.GetLabel() {
			m.labels = append(m.labels, l.GetName())
		}
		for _, b := range first.GetHistogram().GetBucket() {
			m.buckets = append(m.buckets, b.GetUpperBound())
		}
		found[f.GetName()] = m
	}
	return found
}

func golden(t *testing.T, file string) map[string]metric {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	found := map[string]metric{}
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(line, "\t")
		require.Len(t, columns, 5, line)
		m := metric{kind: columns[1]}
		if columns[2] != "" {
			m.labels = strings.Split(columns[2], ",")
		}
		for _, bound := range strings.Fields(columns[3]) {
			number, err := strconv.ParseFloat(bound, 64)
			require.NoError(t, err)
			m.buckets = append(m.buckets, number)
		}
		found[columns[0]] = m
	}
	return found
}
