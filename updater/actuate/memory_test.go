package actuate

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/kube/client"
)

func TestMemoryOfOnePod(t *testing.T) {
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
	read := Memory(clients.Kube.CoreV1().RESTClient())
	used, err := read(t.Context(), "shop", "web")
	require.NoError(t, err)
	require.Equal(t, map[string]amount.Amount{"app": 2048}, used)
	_, err = read(t.Context(), "shop", "other")
	require.ErrorContains(t, err, "read the metrics of pod shop/other")
	_, err = decodeMemory([]byte("<"))
	require.Error(t, err)
}
