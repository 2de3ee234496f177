package recommender

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// Changed pods are drained from the queue once, so a panic on one pod must not lose the others.
func TestLoadPods_RecoversPanicOfOnePod(t *testing.T) {
	w := newWorld(t, deployment("web"), aVPA("web", "web", time.Hour), aPod("web-1", "web"), aPod("web-2", "web", "a"), aPod("web-3", "web")).start()
	// Recording the containers of any pod panics.
	w.metrics.resources = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"one", "too", "many"})
	w.iterate(1)
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.panics.WithLabelValues(stepPods)))
	require.Equal(t, 2, w.loop.Model.Find("ns", "web").Pods())
}
