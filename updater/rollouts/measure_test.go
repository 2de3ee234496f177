package rollouts

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/process"
)

// Prometheus may have no series for some pods, for example because a kubelet cannot name their
// containers. The metric counts them, and their changes are judged by other evidence.
func TestMeasurer_CountsPodsWithoutSeries(t *testing.T) {
	const series = `{"metric":{"loadline_counter":%q,"namespace":"shop","pod":"web-0","container":"app"},"value":[1,"%d"]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[`+series+`,`+series+`]}}`,
			"container_cpu_cfs_periods_total", 10, "container_cpu_cfs_throttled_periods_total", 6)
	}))
	defer server.Close()
	config := DefaultEvidenceConfig()
	config.Address = server.URL
	source, err := NewEvidenceSource(process.OS{}, config)
	require.NoError(t, err)

	m := newMeasurer(source)
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	var ready []cache.ObjectName
	missing := 0
	for i := range 3 {
		pod := cache.ObjectName{Namespace: "shop", Name: fmt.Sprint("web-", i)}
		_, found := m.request(pod, changeKey{types.UID(pod.Name), now.Add(-5 * time.Minute)})
		require.False(t, found)
	}
	m.measure(t.Context(), now, func(pod cache.ObjectName) { ready = append(ready, pod) }, func(pods int) { missing += pods })
	require.Len(t, ready, 3)
	require.Equal(t, 2, missing)
	known, found := m.request(ready[0], changeKey{"web-0", now.Add(-5 * time.Minute)})
	require.True(t, found)
	require.InDelta(t, 0.6, PressureOf(known.now, "web-0", "app").Throttled, 1e-9)
}
