package updater

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/process"
)

func TestEvents_UseSeparateRateLimit(t *testing.T) {
	told := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"kind":"Status","apiVersion":"v1","status":"Success"}`
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events") {
			w.WriteHeader(http.StatusCreated)
			answer = `{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"shop"}}`
			told <- struct{}{}
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config, []byte(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]}`), 0o600))
	clients, err := dial(flags.Kube{Kubeconfig: config, QPS: 0.001, Burst: 1}, dependencies{env: process.OS{}, metrics: newMetrics(prometheus.NewRegistry())})
	require.NoError(t, err)

	change := func() error {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		return clients.Kube.CoreV1().Pods("shop").Delete(ctx, "web", metav1.DeleteOptions{})
	}
	require.NoError(t, change())
	require.ErrorIs(t, change(), client.ErrThrottled)

	recorder, shutdown, err := newRecorder(t.Context(), clients.events, nil)
	require.NoError(t, err)
	defer shutdown()
	recorder.Event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, corev1.EventTypeNormal, "EvictedByVPA", "told")
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Fatal("the event waits for the rate of the changes")
	}
}
