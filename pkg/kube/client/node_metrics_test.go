package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestTheUseOfNodes(t *testing.T) {
	answer, status := "", http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/metrics.k8s.io/v1beta1/nodes" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	clients, err := New(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	ask := func() (map[string]resources.Amount, error) {
		return NodeCPU(t.Context(), clients.Kube.CoreV1().RESTClient())
	}

	answer = `{"kind":"NodeMetricsList","items":[{"metadata":{"name":"n1"},"usage":{"cpu":"1500123456n","memory":"1Gi"}},
		{"metadata":{"name":"n2"},"usage":{"cpu":"-1"}},{"metadata":{"name":"n3"},"usage":{}},{"metadata":{"name":"n4"},"usage":{"cpu":"much"}},{"metadata":{"name":"n5"},"usage":{"cpu":"0"}}]}`
	used, err := ask()
	require.NoError(t, err)
	require.Equal(t, map[string]resources.Amount{"n1": 1501, "n5": 0}, used)

	answer = "[]"
	_, err = ask()
	require.ErrorContains(t, err, "read node metrics (metrics.k8s.io)")
	answer, status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`, http.StatusForbidden
	_, err = ask()
	require.ErrorContains(t, err, "list node metrics (metrics.k8s.io)")
}
