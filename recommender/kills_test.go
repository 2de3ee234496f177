package recommender

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (w *world) setOOMKilled(version, id, request string, at time.Time) {
	w.t.Helper()
	p := aPod("web-1", "web", "a")
	p.ResourceVersion = version
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(request)
	p.Status.ContainerStatuses[0].RestartCount = 1
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		Reason: "OOMKilled", FinishedAt: metav1.NewTime(at), ContainerID: id}
	_, err := w.kube.CoreV1().Pods("ns").Update(w.t.Context(), p, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// An earlier time than that of the last kill must not hide a kill.
func TestOOMKill_CountsOnceAfterClockSetBack(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 200)
	w.iterate(2)
	kills := func(result string) float64 { return testutil.ToFloat64(w.metrics.ooms.WithLabelValues(result)) }
	seen := func(n float64) func() bool {
		return func() bool {
			w.iterate(1)
			return kills("accepted")+kills("duplicate") == n
		}
	}
	first, second := w.now, w.now.Add(-time.Hour)
	w.setOOMKilled("2", "c1", "1Gi", first)
	require.Eventually(t, seen(1), time.Minute, time.Millisecond)
	once := w.memory("web")
	w.setOOMKilled("3", "c2", "1Gi", second)
	require.Eventually(t, seen(2), time.Minute, time.Millisecond)
	require.Equal(t, 2.0, kills("accepted"))
	twice := w.memory("web")
	require.Greater(t, twice, once)

	w.setOOMKilled("4", "c1", "1Gi", first) // a stale state from a lagging API server
	require.Eventually(t, seen(3), time.Minute, time.Millisecond)
	w.setOOMKilled("5", "c2", "2Gi", second)
	require.Eventually(t, seen(4), time.Minute, time.Millisecond)
	require.Equal(t, 2.0, kills("accepted"))
	for range 2 {
		w.restart()
		require.Eventually(t, seen(1), time.Minute, time.Millisecond)
		require.Zero(t, kills("accepted"))
		require.Equal(t, twice, w.memory("web"))
	}
	w.setOOMKilled("6", "c3", "2Gi", second.Add(time.Minute))
	require.Eventually(t, seen(2), time.Minute, time.Millisecond)
	require.Greater(t, w.memory("web"), twice)
}
