package recommender

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func externalNow() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

func externalItem(container, value string, after time.Duration) string {
	return fmt.Sprintf(`{"metricName":"m","metricLabels":{"name":%q},"timestamp":%q,"window":30,"value":%q}`, container, externalNow().Add(after).Format(time.RFC3339), value)
}

func externalList(items string) string {
	return `{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/v1beta1","metadata":{},"items":[` + items + `]}`
}

func TestDecodeExternal_ReadsContainerAndTime(t *testing.T) {
	got, err := decodeExternal([]byte(externalList(externalItem("a", "250500001n", 0)+","+externalItem("b", "-2", time.Second)+`,{"metricLabels":{},"timestamp":"2026-03-02T08:00:00Z","value":"1"}`)),
		externalPod{"ns", "p", ""}, resources.CPU, "name")
	require.NoError(t, err)
	require.Equal(t, []usage.Sample{
		{Container: usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "a"}, Kind: resources.CPU, At: externalNow(), Amount: 251},
		{Container: usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "b"}, Kind: resources.CPU, At: externalNow().Add(time.Second), Amount: -1},
	}, got)
}

func TestDecodeExternal_RejectsInvalidValues(t *testing.T) {
	for _, bad := range []string{externalItem("b", "lots", 0), `{"metricLabels":{"name":"b"},"value":"1"}`, `{"metricLabels":{"name":"b"},"timestamp":"no","value":"1"}`, "3",
		`{"metricLabels":{"name":"b"},"timestamp":"2026-03-02T08:00:00Z"}`, `{"metricLabels":{"name":"b"},"timestamp":"2026-03-02T08:00:00Z","value":null}`} {
		got, err := decodeExternal([]byte(externalList(bad+","+externalItem("a", "0", 0))), externalPod{}, resources.Memory, "name")
		require.Error(t, err, bad)
		require.Len(t, got, 1, bad)
	}
	for _, bad := range []string{"", "{}", `{"items":3}`, externalList("")[:20]} {
		_, err := decodeExternal([]byte(bad), externalPod{}, resources.Memory, "name")
		require.Error(t, err, bad)
	}
}

// externalSource has pods p0 to pn-1 of a VPA with selector app=x.
func externalSource(t *testing.T, pods int, metrics [resources.Kinds]string, handle http.HandlerFunc) *externalMetrics {
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	s, err := newExternalMetrics(&rest.Config{Host: server.URL, QPS: -1}, externalConfig{
		Metrics: metrics, ContainerLabel: "name",
		pods: func(yield func(externalPod) bool) {
			for i := range pods {
				if !yield(externalPod{"ns", fmt.Sprint("p", i), "app=x"}) {
					return
				}
			}
		},
	})
	require.NoError(t, err)
	return s
}

func TestExternalMetrics_QueriesAllPodsAndMetrics(t *testing.T) {
	s := externalSource(t, 20, [resources.Kinds]string{"cpu_use", "mem_use"}, func(w http.ResponseWriter, r *http.Request) {
		require.Contains(t, []string{"/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/cpu_use", "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/mem_use"}, r.URL.Path)
		require.Regexp(t, `^app=x,pod=p\d+$`, r.URL.Query().Get("labelSelector"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, externalList(externalItem("c", "5", 0)))
	})
	got := map[usage.Sample]int{}
	require.NoError(t, s.Samples(t.Context(), func(sample usage.Sample) { got[sample]++ }))
	require.Len(t, got, 40)
}

func TestExternalMetrics_SkipsUnconfiguredMetric(t *testing.T) {
	s := externalSource(t, 1, [resources.Kinds]string{resources.Memory: "mem_use"}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, externalList(externalItem("c", "5", 0)))
	})
	var got []usage.Sample
	require.NoError(t, s.Samples(t.Context(), func(sample usage.Sample) { got = append(got, sample) }))
	require.Len(t, got, 1)
	require.Equal(t, resources.Memory, got[0].Kind)
}

func TestExternalMetrics_ContinuesAfterError(t *testing.T) {
	s := externalSource(t, 10, [resources.Kinds]string{"cpu_use", "mem_use"}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("labelSelector") == "app=x,pod=p3" {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"no such metric","code":404}`)
			return
		}
		fmt.Fprint(w, externalList(externalItem("c", "5", 0)))
	})
	n := 0
	err := s.Samples(t.Context(), func(usage.Sample) { n++ })
	require.Equal(t, 18, n)
	require.ErrorContains(t, err, "read external metrics: 2 of 20 failed")
	require.ErrorContains(t, err, "such as: cpu_use of pod ns/p3: no such metric")
}

func TestExternalMetrics_StopsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int32
	s := externalSource(t, 1000, [resources.Kinds]string{"cpu_use"}, func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		cancel()
		<-r.Context().Done()
	})
	err := s.Samples(ctx, func(usage.Sample) { t.Fatal("no sample") })
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, asked.Load(), int32(externalWorkers))
}

func FuzzDecodeExternal(f *testing.F) {
	f.Add([]byte(externalList(externalItem("a", "1", 0) + "," + externalItem("b", "-1", 0))))
	f.Add([]byte(`{"items":null}`))
	f.Add([]byte(`{"items":[null,{"metricLabels":{"name":"c"},"timestamp":"2026-03-02T08:00:00Z","value":"1e400"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		samples, _ := decodeExternal(text, externalPod{"ns", "p", ""}, resources.CPU, "name")
		for _, s := range samples {
			require.NotEmpty(t, s.Container.Container)
			require.GreaterOrEqual(t, int64(s.Amount), int64(-1))
		}
	})
}

// The caller recovers from panics, which works only on its own goroutine.
func TestExternalMetrics_PropagatesPanicToCaller(t *testing.T) {
	s := externalSource(t, 20, [resources.Kinds]string{"cpu_use", ""}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, externalList(externalItem("c", "5", 0)))
	})
	require.PanicsWithValue(t, "a defect", func() { _ = s.Samples(t.Context(), func(usage.Sample) { panic("a defect") }) })
}
