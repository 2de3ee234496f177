package recommender

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/recommender/backfill"
	"loadline.dev/loadline/recommender/status"
)

// lateSource serves a Prometheus with outages. Usage is 1 core and 500 MiB, and twice as much in
// each fourth hour. It closes every connection, because an idle one stops the clock of a synctest
// bubble.
func lateSource(t *testing.T, away *atomic.Int32) string {
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		query := r.FormValue("query")
		memory := strings.Contains(query, "memory")
		if away.Load() == all || away.Load() == onlyMemory && memory {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		if strings.HasPrefix(query, "up") {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
			return
		}
		var values []string
		from, _ := strconv.Atoi(r.FormValue("start"))
		till, _ := strconv.Atoi(r.FormValue("end"))
		for at := from; at <= till; at += 3600 {
			use := 1
			if at/3600%4 == 0 {
				use = 2
			}
			if memory {
				use *= 500 << 20
			}
			values = append(values, fmt.Sprintf(`[%d,"%d"]`, at, use))
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"namespace":"ns","pod_name":"p1","name":"a"},"values":[%s]}]}}`,
			strings.Join(values, ","))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Outages of a lateSource.
const (
	nothing = iota
	onlyMemory
	all
)

type runResult struct {
	recommendation []vpav1.RecommendedContainerResources
	samples        int64
	first, last    time.Time
	weight         float64 // total weight of memory peaks
}

// runWith runs 20 iterations with live usage. The history source fails until after the 10th.
func runWith(t *testing.T, missing int32) (got runResult) {
	away := &atomic.Int32{}
	away.Store(missing)
	address := lateSource(t, away)
	synctest.Test(t, func(t *testing.T) {
		published := aVPA("v", "x", time.Hour)
		published.Status = *publishedStatus("a", "4", "4Gi")
		w := withPrometheus(t, newWorld(t, deployment("x"), aPod("p1", "x", "a"), published), address).start()
		w.loop.Publisher.Tolerance = 0 // compare the latest bounds
		w.setUsage("p1", "a", 300, 400)
		held := func() string { _, message := w.condition("v", status.TargetHeld); return message }
		w.iterate(10)
		if missing != nothing {
			require.NotEqual(t, backfill.Complete, w.loop.Backfill.Progress().State)
			require.Equal(t, "4", w.recommendations("v")[0].Target.Cpu().String())
			require.Equal(t, "4Gi", w.recommendations("v")[0].Target.Memory().String())
			require.Contains(t, held(), "cpu and memory of container a")
			away.Store(nothing)
			time.Sleep(time.Minute) // retry interval
			synctest.Wait()
		}
		require.Equal(t, backfill.Complete, w.loop.Backfill.Progress().State)
		w.iterate(1)
		require.Empty(t, held())
		require.True(t, w.metrics.history.Complete())
		w.iterate(9)
		require.EqualValues(t, 2*193, testutil.ToFloat64(w.metrics.historySamples.WithLabelValues("accepted")))

		require.Equal(t, 1, w.loop.Store.Len())
		for series := range w.loop.Store.All() {
			got.first, got.last, got.samples = w.loop.Store.Span(series)
			p := usage.NewProfile(w.config.Aggregation.Store().Shape)
			w.loop.Store.Profile(&p, series)
			image := p.Image().Memory
			got.weight = image.Total / math.Exp2(w.now.Sub(image.Reference).Hours()/24)
		}
		got.recommendation = w.recommendations("v")
		w.stop()
		w.stop = nil
	})
	return got
}

func TestBackfill_LateHistoryMatchesHistoryAtStart(t *testing.T) {
	inTime := runWith(t, nothing)
	require.EqualValues(t, 193+20, inTime.samples)
	target := inTime.recommendation[0].Target
	require.Greater(t, target.Cpu().MilliValue(), int64(2000), "2 cores in more than a tenth of the time")
	require.Less(t, target.Cpu().MilliValue(), int64(4000))
	for name, missing := range map[string]int32{"all": all, "memory": onlyMemory} {
		t.Run(name, func(t *testing.T) {
			late := runWith(t, missing)
			require.InEpsilon(t, inTime.weight, late.weight, 1e-6, "no peak is lost, and none counts twice")
			late.weight = inTime.weight
			require.Equal(t, inTime, late)
		})
	}
}
