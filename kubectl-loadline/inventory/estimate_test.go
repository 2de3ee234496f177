package inventory

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/testkit"
)

// An absurd value of a metrics source must not determine the estimate.
func TestEstimate_IgnoresSamplesAboveNodeCapacity(t *testing.T) {
	pod := testkit.Pod("web-1-a", testkit.Container("a", "cpu=100m memory=100Mi", ""))
	pod.Spec.NodeName = "n"
	for _, name := range []string{"vpa", "loadline", "attune"} {
		book, err := recipe.NewCache(name, recipe.DefaultConfig())
		require.NoError(t, err)
		estimate := func(extra ...usage.Sample) map[string]resources.Bounds {
			e := &Estimator{Name: FromMetricsAPI, Book: book}
			e.addNodes([]corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Capacity: testkit.List("cpu=4 memory=8Gi")}}})
			key := usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: "a"}
			for _, s := range append(plugintest.ProxyUsage(), extra...) {
				s.Container = key
				e.Add(s)
			}
			return e.Recommend(&Workload{Pods: []*corev1.Pod{pod}})
		}
		at := plugintest.Now()
		require.Equal(t, estimate(), estimate(usage.Sample{Kind: resources.CPU, At: at, Amount: 4401}, usage.Sample{Kind: resources.Memory, At: at, Amount: 1 << 40}), name)
		require.NotEmpty(t, estimate(), name)
	}
}

func TestNewEstimator_RefusesSeriesOfTwoClusters(t *testing.T) {
	now := plugintest.Now()
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		series := func(pod, cluster string) string {
			return fmt.Sprintf(`{"metric":{"namespace":"shop","pod":%q,"container":"a","cluster":%q},"values":[[%d,"0.25"],[%d,"0.25"]]}`, pod, cluster, now.Unix()-300, now.Unix())
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s,%s,%s]}}`, series("p", "east"), series("p", "west"), series("q", "east"))
	}))
	defer server.Close()
	f := EstimateFlags{}
	fs := flags.New("")
	f.AddFlags(fs)
	require.NoError(t, fs.Parse([]string{"--prometheus-address=" + server.URL}))
	parsed, err := f.Parse()
	require.NoError(t, err)
	e, err := f.NewEstimator(t.Context(), parsed, &rest.Config{Host: server.URL}, Request{Kube: fake.NewClientset(), Namespace: "shop", Now: now})
	require.ErrorContains(t, err, `container a of pod shop/p has series with cluster="east" and cluster="west"`)
	require.Empty(t, e.samples[usage.ContainerKey{Namespace: "shop", Pod: "p", Container: "a"}])
	require.Len(t, e.samples[usage.ContainerKey{Namespace: "shop", Pod: "q", Container: "a"}], 4)
}

func TestNewEstimator_Sources(t *testing.T) {
	now := plugintest.Now()
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/namespaces/shop/pods"):
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"p","namespace":"shop"},"timestamp":"2026-03-02T08:00:00Z","containers":[{"name":"a","usage":{"cpu":"250m","memory":"100Mi"}}]}]}`)
		case r.URL.Path == "/api/v1/query_range":
			require.NoError(t, r.ParseForm())
			require.Contains(t, r.Form.Get("query"), `namespace="shop"`)
			value := "0.25"
			if strings.Contains(r.Form.Get("query"), "memory") {
				value = "104857600"
			}
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"namespace":"shop","pod":"p","container":"a"},"values":[[%d,"%s"],[%d,"%s"]]}]}}`,
				now.Unix()-300, value, now.Unix(), value)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	key := usage.ContainerKey{Namespace: "shop", Pod: "p", Container: "a"}
	for _, tc := range []struct {
		name            string
		address, source string
		samples         int
	}{
		{name: "metrics API", address: "", source: FromMetricsAPI, samples: 2},
		{name: "Prometheus", address: server.URL, source: "Prometheus", samples: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := EstimateFlags{}
			fs := flags.New("")
			f.AddFlags(fs)
			require.NoError(t, fs.Parse([]string{"--prometheus-address=" + tc.address}))
			parsed, err := f.Parse()
			require.NoError(t, err)
			request := Request{Kube: fake.NewClientset(), Namespace: "shop", Now: now}
			e, err := f.NewEstimator(t.Context(), parsed, &rest.Config{Host: server.URL}, request)
			require.NoError(t, err)
			require.Equal(t, tc.source, e.Name)
			require.Len(t, e.samples[key], tc.samples)
			require.Equal(t, resources.Amount(250), e.samples[key][0].Amount)
		})
	}
	f := EstimateFlags{}
	f.AddFlags(flags.New(""))
	parsed, err := f.Parse()
	require.NoError(t, err)
	_, err = f.NewEstimator(t.Context(), parsed, &rest.Config{Host: server.URL}, Request{Kube: fake.NewClientset(), Namespace: "other", Now: now})
	require.ErrorContains(t, err, "list pod metrics")
	require.Equal(t, 8*24*time.Hour, parsed.length)
}
