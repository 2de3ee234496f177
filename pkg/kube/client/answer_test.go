package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/kube/client"
)

func TestBody_ErrorContainsReasonOfServer(t *testing.T) {
	for _, tc := range []struct {
		name, kind, body string
		code             int
		want             string
		is               func(error) bool
	}{
		{name: "a status", code: 500, kind: "application/json", want: `Internal error occurred: the spec replicas field ".spec.shards" does not exist`, is: apierrors.IsInternalError,
			body: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Internal error occurred: the spec replicas field \".spec.shards\" does not exist","reason":"InternalError","code":500}`},
		{name: "a status without reason and code", code: 404, kind: "application/json", want: "no such store", is: apierrors.IsNotFound,
			body: `{"kind":"Status","status":"Failure","message":"no such store"}`},
		{name: "text of a proxy", code: 503, kind: "text/plain", want: "dial tcp: connection refused", is: apierrors.IsServiceUnavailable,
			body: "error trying to reach service:\ndial tcp: connection refused\n"},
		{name: "an unknown object", code: 422, kind: "application/json", want: `{"problem":"no shards"}`, is: apierrors.IsInvalid, body: `{"problem":"no shards"}`},
		{name: "an empty answer", code: 403, kind: "application/json", want: "unknown", is: apierrors.IsForbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(tc.code)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer server.Close()
			d, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			_, err = client.Body(d.RESTClient().Get().AbsPath("/apis/example.org/v1/namespaces/n/stores/main/scale").Do(t.Context()))
			require.ErrorContains(t, err, tc.want)
			require.True(t, tc.is(err), err)
		})
	}
}
