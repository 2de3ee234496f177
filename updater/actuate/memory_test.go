package actuate

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
)

func TestMeterMemory_ReadsOnePod(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/web" || r.Header.Get("Accept") != "application/json" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
			return
		}
		_, _ = w.Write([]byte(`{"containers":[{"name":"app","usage":{"cpu":"1n","memory":"2Ki"}},{"name":"side","usage":{}}]}`))
	}))
	defer s.Close()
	clients, err := client.New(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	read := NewMeter(clients.Kube.CoreV1().RESTClient()).Memory
	used, err := read(t.Context(), "shop", "web")
	require.NoError(t, err)
	require.Equal(t, map[string]resources.Amount{"app": 2048}, used)
	_, err = read(t.Context(), "shop", "other")
	require.ErrorContains(t, err, "read the metrics of pod shop/other")
	_, err = read(t.Context(), "shop/pods/../../shop", "web")
	require.ErrorContains(t, err, "invalid namespace")
	_, err = read(t.Context(), "shop", "x/../web")
	require.ErrorContains(t, err, "invalid resource name", "no other pod is read")
	_, err = decodeMemory([]byte("<"))
	require.Error(t, err)
}

type hangingTransport struct{ requests atomic.Int32 }

func (h *hangingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	h.requests.Add(1)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Waiting for an unresponsive metrics API would hold up all changes.
func TestMeterMemory_PausesUnresponsiveAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(hangingTransport)
		clients, err := client.New(&rest.Config{Host: "http://api.example", Transport: server})
		require.NoError(t, err)
		core := clients.Kube.CoreV1().RESTClient()

		stopped, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		m := NewMeter(core)
		_, err = m.Memory(stopped, "shop", "web")
		require.Error(t, err)
		require.Empty(t, m.pausedUntil, "the caller had no time")

		server.requests.Store(0)
		for _, pod := range []string{"one", "two", "three"} {
			_, err = m.Memory(t.Context(), "shop", pod)
			require.ErrorContains(t, err, "read the metrics of pod shop/"+pod)
		}
		require.ErrorIs(t, err, errMetricsPaused)
		require.EqualValues(t, 1, server.requests.Load())
		_, err = m.Memory(t.Context(), "other", "web")
		require.NotErrorIs(t, err, errMetricsPaused, "the pod of one namespace proves nothing about others")
		_, err = m.Memory(t.Context(), "third", "web")
		require.ErrorIs(t, err, errMetricsPaused, "two namespaces do")
		require.EqualValues(t, 2, server.requests.Load())
		time.Sleep(metricsPause)
		_, err = m.Memory(t.Context(), "shop", "web")
		require.NotErrorIs(t, err, errMetricsPaused, "it is asked again")
		require.EqualValues(t, 3, server.requests.Load())
	})
}
