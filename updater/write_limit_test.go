package updater

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/actuate"
)

// limitWrites sends changes through a write limit to an API server that accepts them all, and
// counts resizes. Pods have 12 KiB.
func (w *world) limitWrites(limit client.WriteLimit) (resizes *atomic.Int32) {
	w.t.Helper()
	resizes = &atomic.Int32{}
	answer := `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"large":"` + strings.Repeat("x", 12<<10) + `"}}}`
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/resize") {
			resizes.Add(1)
		}
		response.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(response, answer)
	}))
	w.t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	client.NewWriteLimiter(limit, prometheus.NewRegistry()).Limit(config)
	clients, err := client.New(config)
	require.NoError(w.t, err)
	w.loop.runner.Executor.(*actuate.Cluster).Kube = clients.Kube
	return resizes
}

// Other pods stay unchanged, without evictions. Memory after an OOM kill is exempt.
func TestWriteLimit_PostponesResizes(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 30)...)
	resizes := w.limitWrites(client.UpdaterWrites)
	w.runOnce(noon)
	planned := int(resizes.Load())

	w = newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 30)...)
	resizes = w.limitWrites(client.WriteLimit{Burst: 256 << 10, Refill: 1 << 10, Window: time.Hour})
	w.runOnce(noon)
	made := int(resizes.Load())
	require.InDelta(t, 8, made, 2, "a resize writes its pod twice")
	require.EqualValues(t, planned-made, w.value("loadline_updater_skipped_pods", "reason", "WriteLimit"))
	require.Zero(t, w.value("loadline_updater_skipped_pods", "reason", "ResizeRefused"))
	require.Empty(t, w.evictions())

	w.change("web-1-29", killed)
	w.loop.RunOOM(t.Context(), noon, raisedVPAs)
	require.EqualValues(t, made+1, resizes.Load(), "memory after a kill does not wait")

	resizes = w.limitWrites(client.UpdaterWrites)
	w.runOnce(noon.Add(time.Minute))
	require.EqualValues(t, planned, resizes.Load(), "nothing was counted as a failed attempt")
}

func TestWriteLimit_PostponesEvictions(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
	refusal := apierrors.NewTooManyRequestsError("not sent")
	refusal.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "LoadlineWriteLimit"}}}
	require.True(t, client.IsWriteLimited(refusal))
	w.admit = func(*corev1.Pod) error { return refusal }
	w.runOnce(noon)
	require.Empty(t, w.evictions())
	require.Positive(t, w.value("loadline_updater_skipped_pods", "reason", "WriteLimit"))
	require.Zero(t, w.value("loadline_updater_skipped_pods", "reason", "ReplacementUnknown"))
	require.Zero(t, w.value("loadline_updater_skipped_pods", "reason", "EvictionRefused"))

	w.admit = nil
	w.runOnce(noon.Add(time.Minute))
	require.NotEmpty(t, w.evictions())
}
