package recommender

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/recommender/status"
)

// Covers live usage and history. The condition disappears after one of the series ends.
func TestRunOnce_SetsUsageAmbiguousForSeriesOfTwoClusters(t *testing.T) {
	for _, tc := range []struct {
		name    string
		source  string // live usage
		storage string
	}{
		{name: "live usage", source: UsageFromPrometheus, storage: "checkpoint"},
		{name: "history", source: UsageFromMetrics, storage: "prometheus"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var single atomic.Bool
			w := newWorld(t,
				deployment("x"), aPod("p1", "x", "a"), aVPA("both", "x", time.Hour),
				deployment("y"), aPod("p2", "y", "a"), aVPA("one", "y", time.Hour))
			w.config.Checkpoints.Storage = tc.storage
			w.config.Prometheus.Address, w.config.Prometheus.UsageSource = twoClusters(t, single.Load), tc.source
			require.NoError(t, w.config.Validate())
			from, err := newUsageSource(process.OS{}, &rest.Config{Host: "http://127.0.0.1:1"}, w.config.usageSourceConfig(newMetrics(prometheus.NewRegistry())))
			require.NoError(t, err)
			w.usageSource = from
			begin := func() {
				w.start()
				if tc.source == UsageFromPrometheus {
					w.loop.Ingester.Source = from
				} else {
					w.setUsage("p1", "a", 100, 100)
					w.setUsage("p2", "a", 100, 100)
				}
			}
			begin()
			w.iterate(2)
			state, message := w.condition("both", status.UsageAmbiguous)
			require.Equal(t, corev1.ConditionTrue, state)
			require.Contains(t, message, `container a of pod ns/p1 has series with cluster="east" and cluster="west"`)
			state, _ = w.condition("one", status.UsageAmbiguous)
			require.Empty(t, state)

			single.Store(true)
			if tc.storage == "prometheus" { // history is read at start
				w.usageSource, err = newUsageSource(process.OS{}, &rest.Config{Host: "http://127.0.0.1:1"}, w.config.usageSourceConfig(newMetrics(prometheus.NewRegistry())))
				require.NoError(t, err)
				begin()
			}
			w.iterate(2)
			state, _ = w.condition("both", status.UsageAmbiguous)
			require.Empty(t, state)
		})
	}
}

// twoClusters serves the usage of two pods. Pod p1 has series of two clusters unless single returns
// true.
func twoClusters(t *testing.T, single func() bool) string {
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		value := "0.1"
		if strings.Contains(r.FormValue("query"), "memory") {
			value = "104857600"
		}
		kind, points := "vector", fmt.Sprintf(`"value":[%d,%q]`, start().Unix(), value)
		if strings.HasSuffix(r.URL.Path, "/query_range") {
			var all []string
			from, _ := strconv.Atoi(r.FormValue("start"))
			till, _ := strconv.Atoi(r.FormValue("end"))
			for at := from; at <= till; at += 3600 {
				all = append(all, fmt.Sprintf("[%d,%q]", at, value))
			}
			kind, points = "matrix", fmt.Sprintf(`"values":[%s]`, strings.Join(all, ","))
		}
		var series []string
		for _, pod := range []struct{ name, cluster string }{{"p1", "east"}, {"p1", "west"}, {"p2", "east"}} {
			if pod.cluster == "east" || !single() {
				series = append(series, fmt.Sprintf(
					`{"metric":{"namespace":"ns","pod_name":%q,"name":"a","cluster":%q},%s}`, pod.name, pod.cluster, points))
			}
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":%q,"result":[%s]}}`, kind, strings.Join(series, ","))
	}))
	t.Cleanup(server.Close)
	return server.URL
}
