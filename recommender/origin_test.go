package recommender

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/recommender/backfill"
)

// prometheusWithHistory serves a constant usage of 1 core and 1000 MiB for container a of a pod.
func prometheusWithHistory(t *testing.T, pod string, fails func() bool) string {
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		if fails != nil && fails() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		value := `"1"`
		if strings.Contains(r.FormValue("query"), "memory") {
			value = `"1048576000"`
		}
		metric := `{"metric":{"namespace":"ns","pod_name":"` + pod + `","name":"a"},`
		switch {
		case strings.HasPrefix(r.FormValue("query"), "up"):
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
		case strings.HasSuffix(r.URL.Path, "/query"):
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s"value":[%d,%s]}]}}`, metric, start().Unix(), value)
		default:
			var values []string
			from, _ := strconv.Atoi(r.FormValue("start"))
			till, _ := strconv.Atoi(r.FormValue("end"))
			for at := from; at <= till; at += 3600 {
				values = append(values, fmt.Sprintf("[%d,%s]", at, value))
			}
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s"values":[%s]}]}}`, metric, strings.Join(values, ","))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func withPrometheus(t *testing.T, w *world, address string) *world {
	w.config.Checkpoints.Storage = "prometheus"
	w.config.Prometheus.Address = address
	require.NoError(t, w.config.Validate())
	m := newMetrics(prometheus.NewRegistry())
	from, err := newUsageSource(process.OS{}, &rest.Config{Host: "http://127.0.0.1:1"}, w.config.usageSourceConfig(m))
	require.NoError(t, err)
	w.usageSource = from
	return w
}

func TestBackfill_LoadsHistoryBeforeFirstIteration(t *testing.T) {
	w := withPrometheus(t, newWorld(t, deployment("x"), aPod("p1", "x", "a"), aVPA("v", "x", time.Hour)), prometheusWithHistory(t, "p1", nil)).start()
	require.Equal(t, backfill.Complete, w.loop.Backfill.Progress().State)
	w.iterate(1)
	got := w.recommendations("v")
	require.Len(t, got, 1)
	require.EqualValues(t, 1168, got[0].Target.Cpu().MilliValue(), "1 core in its bucket, plus 15 %")
	require.Greater(t, got[0].Target.Memory().Value(), int64(1048576000))
	w.setUsage("p1", "a", 1000, 1000)
	w.iterate(15)
	require.EqualValues(t, 1168, w.recommendations("v")[0].Target.Cpu().MilliValue())

	list, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items, "with Prometheus there are no checkpoints")
	require.EqualValues(t, 2*193, testutil.ToFloat64(w.metrics.historySamples.WithLabelValues("accepted")))
}

func TestBackfill_HoldsTargetUntilComplete(t *testing.T) {
	for _, away := range []bool{false, true} {
		published := aVPA("v", "x", time.Hour)
		published.Status = *publishedStatus("a", "4", "4Gi")
		w := withPrometheus(t, newWorld(t, deployment("x"), aPod("p1", "x", "a"), published), prometheusWithHistory(t, "p1", func() bool { return away })).start()
		w.setUsage("p1", "a", 100, 100)
		w.iterate(2)
		want := "1168m"
		if away {
			want = "4"
		}
		require.Equal(t, want, w.recommendations("v")[0].Target.Cpu().String())
		require.EqualValues(t, !away, w.metrics.history.Complete())
	}
}

func publishedStatus(container, cpu, memory string) *vpav1.VerticalPodAutoscalerStatus {
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	return &vpav1.VerticalPodAutoscalerStatus{
		Conditions: []vpav1.VerticalPodAutoscalerCondition{{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue}},
		Recommendation: &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
			ContainerName: container, Target: amounts, LowerBound: amounts, UpperBound: amounts, UncappedTarget: amounts}}},
	}
}

func TestRunOnce_ContinuesWithoutPrometheus(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	w := withPrometheus(t, newWorld(t, deployment("x"), aPod("p1", "x", "a"), aVPA("v", "x", time.Hour)), prometheusWithHistory(t, "p1", func() bool {
		mu.Lock()
		defer mu.Unlock()
		asked++
		return true
	})).start()
	require.Positive(t, asked)
	require.Equal(t, backfill.Failed, w.loop.Backfill.Progress().State)
	w.setUsage("p1", "a", 100, 100)
	w.iterate(2)
	require.Len(t, w.recommendations("v"), 1)
}

func TestPrometheusSource_ReadsLiveUsage(t *testing.T) {
	c := Default()
	c.Prometheus.UsageSource, c.Prometheus.Address = "prometheus", prometheusWithHistory(t, "p1", nil)
	m := newMetrics(prometheus.NewRegistry())
	from, err := newUsageSource(process.OS{}, &rest.Config{Host: "http://127.0.0.1:1"}, c.usageSourceConfig(m))
	require.NoError(t, err)
	require.Equal(t, "Prometheus", from.Name)
	n := 0
	require.NoError(t, from.Samples(t.Context(), func(s usage.Sample) {
		n++
		require.WithinDuration(t, start(), s.At, time.Second)
	}))
	require.Equal(t, 2, n)
	require.EqualValues(t, 2, testutil.ToFloat64(m.prometheusRequests.WithLabelValues("200", "post")))
}

func TestExternalMetrics_QueriesPodsOfVPAs(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path[len("/apis/external.metrics.k8s.io/v1beta1"):]+"?"+r.URL.Query().Get("labelSelector"))
		fmt.Fprintf(w, `{"items":[{"metricLabels":{"name":"a"},"timestamp":%q,"value":"1"}]}`, start().Add(time.Minute).Format(time.RFC3339))
	}))
	defer server.Close()
	w := newWorld(t, deployment("x"), aPod("p1", "x", "a"), aPod("p2", "other", "a"), aVPA("v", "x", time.Hour))
	w.config.External.Use, w.config.External.CPUMetric = true, "cpu_use"
	require.NoError(t, w.config.Validate())
	from, err := newUsageSource(process.OS{}, &rest.Config{Host: server.URL}, w.config.usageSourceConfig(newMetrics(prometheus.NewRegistry())))
	require.NoError(t, err)
	w.usageSource = from
	w.start()
	w.loop.Ingester.Source = from
	w.iterate(1)
	require.Equal(t, []string{"/namespaces/ns/cpu_use?app=x,pod=p1"}, asked)
	got := w.recommendations("v")
	require.Len(t, got, 1)
	require.NotContains(t, got[0].Target, "memory", "a metric that is not configured is no zero")
}

func TestPrometheusSource_CountsCPUWaiting(t *testing.T) {
	at := start()
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		value := map[bool]string{true: "0.2", false: "0.5"}[strings.Contains(r.FormValue("query"), "pressure_cpu_waiting")]
		if strings.Contains(r.FormValue("query"), "memory") {
			value = "1e9"
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"namespace":"ns","pod_name":"web-1","name":"a"},"value":[%d,"%s"]}]}}`, at.Unix(), value)
	}))
	t.Cleanup(server.Close)
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), webVPA("cruisekube"))
	w.config.Prometheus.Address, w.config.Prometheus.UsageSource = server.URL, "prometheus"
	require.NoError(t, w.config.Validate())
	from, err := newUsageSource(process.OS{}, &rest.Config{Host: "http://127.0.0.1:1"}, w.config.usageSourceConfig(newMetrics(prometheus.NewRegistry())))
	require.NoError(t, err)
	w.usageSource = from
	w.start()
	w.loop.Ingester.Source = from
	for range 3 {
		at = at.Add(time.Minute)
		w.iterate(1)
	}
	require.EqualValues(t, 600, w.recommendations("web")[0].Target.Cpu().MilliValue())
}

// Guards against rounding errors: 100m × 1.2 is 120m, not 121m.
func TestBackfill_CountsCPUWaitingExactly(t *testing.T) {
	for _, tc := range []struct {
		usage, waiting string
		expected       int64 // millicores
	}{
		{usage: "0.1", waiting: "0.2", expected: 120},
		{usage: "0.5", waiting: "0.2", expected: 600},
		{usage: "0.2", waiting: "0.1", expected: 220},
		{usage: "1", waiting: "0.7", expected: 1700},
	} {
		t.Run(tc.usage+" and "+tc.waiting, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
				value := tc.usage
				switch query := r.FormValue("query"); {
				case strings.Contains(query, "pressure_cpu_waiting"):
					value = tc.waiting
				case strings.Contains(query, "memory"):
					value = "1e8"
				}
				var values []string
				from, _ := strconv.Atoi(r.FormValue("start"))
				till, _ := strconv.Atoi(r.FormValue("end"))
				for at := from; at <= till; at += 300 {
					values = append(values, fmt.Sprintf("[%d,%q]", at, value))
				}
				fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[`+
					`{"metric":{"namespace":"ns","pod_name":"web-1","name":"a"},"values":[%s]}]}}`, strings.Join(values, ","))
			}))
			t.Cleanup(server.Close)
			w := withPrometheus(t, newWorld(t, deployment("web"), aPod("web-1", "web", "a"), webVPA("cruisekube")), server.URL).start()
			w.iterate(1)
			require.Equal(t, tc.expected, w.recommendations("web")[0].Target.Cpu().MilliValue())
		})
	}
}

func TestCPUWaiting_LogsMissingDataOnce(t *testing.T) {
	for name, c := range map[string]struct {
		recipe, source, metric string
		waited                 string // result of the waiting time query
		reason                 string // empty: nothing is logged
	}{
		"no series":            {"cruisekube", "prometheus", "waited_total", "", "Prometheus has no series of waited_total"},
		"nothing waited":       {"cruisekube", "prometheus", "waited_total", `{"metric":{"namespace":"ns","pod_name":"web-1","name":"a"},"value":[1772438400,"0"]}`, ""},
		"no metric":            {"loadline:cpu=shared", "prometheus", "", "", "--history-cpu-waiting-metric is empty"},
		"metrics API":          {"loadline:cpu=shared", "metrics", "waited_total", "", "the metrics API does not include it"},
		"external metrics":     {"loadline:cpu=shared", "external", "waited_total", "", "external metrics do not include it"},
		"nobody wants to know": {"loadline", "metrics", "waited_total", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case !strings.Contains(r.URL.Path, "query"):
					fmt.Fprint(w, `{"items":[]}`)
				case strings.Contains(r.FormValue("query"), "waited_total"):
					fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, c.waited)
				default:
					fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"namespace":"ns","pod_name":"web-1","name":"a"},"value":[1772438400,"1"]}]}}`)
				}
			}))
			t.Cleanup(server.Close)
			w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), webVPA(c.recipe))
			w.config.Prometheus.Address, w.config.Prometheus.WaitingMetric = server.URL, c.metric
			if c.source == "external" {
				w.config.External.Use, w.config.External.CPUMetric = true, "cpu_use"
			} else {
				w.config.Prometheus.UsageSource = c.source
			}
			from, err := newUsageSource(process.OS{}, &rest.Config{Host: server.URL}, w.config.usageSourceConfig(newMetrics(prometheus.NewRegistry())))
			require.NoError(t, err)
			w.usageSource = from
			w.start()
			w.iterate(1)
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			for range 3 {
				require.NoError(t, from.Samples(klog.NewContext(t.Context(), logger), func(usage.Sample) {}))
			}
			logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			require.Equal(t, min(len(c.reason), 1), strings.Count(logged, "using CPU usage unchanged"), logged)
			require.Contains(t, logged, c.reason)
		})
	}
}
