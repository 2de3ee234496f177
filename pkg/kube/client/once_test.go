package client

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func busy(t *testing.T, retryAfter string) (*Clients, *atomic.Int32) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"the budget allows none"}`))
	}))
	t.Cleanup(s.Close)
	clients, err := New(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	return clients, &asked
}

func TestWithoutRetries_SendsRequestOnce(t *testing.T) {
	clients, asked := busy(t, "10")
	began := time.Now()
	err := clients.Kube.CoreV1().Pods("ns").Delete(WithoutRetries(t.Context()), "p", metav1.DeleteOptions{})
	require.True(t, apierrors.IsTooManyRequests(err), err)
	require.ErrorContains(t, err, "the budget allows none")
	require.Less(t, time.Since(began), 5*time.Second)
	require.EqualValues(t, 1, asked.Load())

	clients, asked = busy(t, "0")
	require.Error(t, clients.Kube.CoreV1().Pods("ns").Delete(t.Context(), "p", metav1.DeleteOptions{}))
	require.Greater(t, asked.Load(), int32(1), "others are sent again")
}
