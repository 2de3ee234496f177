package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

const twoPods = `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[
 {"metadata":{"name":"p1","namespace":"ns","labels":{"a":"b"}},"timestamp":"2026-03-02T08:00:00Z","window":"15s","containers":[
  {"name":"a","usage":{"cpu":"250500001n","memory":"1025Ki"}},
  {"name":"b","usage":{"cpu":"1"}}]},
 {"metadata":{"name":"p2","namespace":"ns"},"timestamp":"2026-03-02T08:00:01Z","containers":[
  {"name":"a","usage":{"memory":"-5","cpu":"lots"}},{"name":"c","usage":{}},{"name":"d"}]}]}`

func decodePods(text string) ([]usage.Sample, error) {
	var samples []usage.Sample
	err := decodePodMetrics(strings.NewReader(text), func(s usage.Sample) { samples = append(samples, s) })
	return samples, err
}

func TestDecodePodMetrics_OneSamplePerResource(t *testing.T) {
	got, err := decodePods(twoPods)
	require.NoError(t, err)
	at := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	key := func(pod, c string) usage.ContainerKey {
		return usage.ContainerKey{Namespace: "ns", Pod: pod, Container: c}
	}
	require.Equal(t, []usage.Sample{
		{Container: key("p1", "a"), Kind: resources.CPU, At: at, Amount: 251},
		{Container: key("p1", "a"), Kind: resources.Memory, At: at, Amount: 1025 << 10},
		{Container: key("p1", "b"), Kind: resources.CPU, At: at, Amount: 1000},
		{Container: key("p2", "a"), Kind: resources.Memory, At: at.Add(time.Second), Amount: -1},
	}, got)
}

func TestDecodePodMetrics_RejectsInvalidLists(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{name: "empty", want: "EOF"},
		{name: "list", text: "[]", want: "want { of a PodMetricsList"},
		{name: "other kind", text: `{"kind":"Status"}`, want: "no items"},
		{name: "items are an object", text: `{"items":{}}`, want: "want a list"},
		{name: "containers are a number", text: `{"items":[{"containers":3}]}`, want: "containers"},
		{name: "truncated list", text: twoPods[:len(twoPods)-20], want: "EOF"},
		{name: "invalid timestamp", text: `{"items":[{"timestamp":"no"}]}`, want: "parsing time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := decodePods(tc.text)
			require.ErrorContains(t, err, tc.want)
		})
	}
	for _, text := range []string{`{"items":null}`, `{"items":[]}`} {
		got, err := decodePods(text)
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

func TestPodMetrics_RequestsOneNamespaceOrAll(t *testing.T) {
	var path string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, twoPods)
	}))
	defer server.Close()
	for _, tc := range []struct{ name, namespace, want string }{
		{name: "all namespaces", want: "/apis/metrics.k8s.io/v1beta1/pods"},
		{name: "one namespace", namespace: "ns", want: "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source, err := NewPodMetrics(&rest.Config{Host: server.URL}, tc.namespace)
			require.NoError(t, err)
			n := 0
			require.NoError(t, source.Samples(t.Context(), func(usage.Sample) { n++ }))
			require.Equal(t, tc.want, path)
			require.Equal(t, 4, n)
		})
	}
}

func TestPodMetrics_MissingAPIIsClearError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"the server could not find the requested resource","code":404}`)
	}))
	defer server.Close()
	source, err := NewPodMetrics(&rest.Config{Host: server.URL}, "")
	require.NoError(t, err)
	err = source.Samples(t.Context(), func(usage.Sample) { t.Fatal("no sample") })
	require.ErrorContains(t, err, "list pod metrics (metrics.k8s.io): the server could not find the requested resource")
}

func FuzzDecodePodMetrics(f *testing.F) {
	f.Add(twoPods)
	f.Add(`{"items":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		_ = decodePodMetrics(strings.NewReader(text), func(s usage.Sample) {
			require.GreaterOrEqual(t, int64(s.Amount), int64(-1))
		})
	})
}

func TestDecodePodMetrics_InvalidPodKeepsOtherPods(t *testing.T) {
	var pods []string
	err := decodePodMetrics(strings.NewReader(`{"items": [
		{"metadata": {"namespace": "ns", "name": "a"}, "timestamp": "yesterday", "containers": [{"name": "c", "usage": {"cpu": "1"}}]},
		{"metadata": {"namespace": "ns", "name": "b"}, "timestamp": "2026-03-02T08:00:00Z", "containers": [{"name": "c", "usage": {"cpu": 1}}]},
		{"metadata": {"namespace": "ns", "name": "c"}, "timestamp": "2026-03-02T08:00:00Z", "containers": [{"name": "c", "usage": {"cpu": "1"}}]}
	]}`), func(s usage.Sample) { pods = append(pods, s.Container.Pod) })
	require.Equal(t, []string{"c"}, pods)
	require.ErrorContains(t, err, "2 pods")
	require.ErrorContains(t, err, "ns/b")
}

// A cluster with 50,000 pods responds with fifty times this size.
func BenchmarkDecode(b *testing.B) {
	var text strings.Builder
	text.WriteString(`{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[`)
	for pod := range 1000 {
		if pod > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"metadata":{"name":"web-6d5f7c9b8-%05d","namespace":"team-%d","creationTimestamp":"2026-03-02T08:00:09Z","labels":{"app":"web","pod-template-hash":"6d5f7c9b8"}},
			"timestamp":"2026-03-02T08:00:00Z","window":"15.03s","containers":[{"name":"app","usage":{"cpu":"%dn","memory":"%dKi"}},{"name":"proxy","usage":{"cpu":"1201n","memory":"2048Ki"}}]}`,
			pod, pod%20, pod*1000003, pod+4096)
	}
	text.WriteString("]}")
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if err := decodePodMetrics(strings.NewReader(text.String()), func(usage.Sample) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/container")
}
