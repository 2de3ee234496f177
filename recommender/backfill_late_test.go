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

// lateSource is a Prometheus that can be away. Container a of pod p1 used 1 core and
// 500 MiB, twice as much in each fourth hour. It closes each connection: one that
// waits would stop the clock of a synctest bubble.
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

// What a lateSource does not answer.
const (
	nothing = iota
	onlyMemory
	all
)

// past is what a program knows in the end.
type past struct {
	recommendation []vpav1.RecommendedContainerResources
	samples        int64
	first, last    time.Time
	weight         float64 // of all memory peaks
}

// runWith makes 20 passes with live usage, whose source of history cannot answer
// all queries before the 11th.
func runWith(t *testing.T, missing int32) (got past) {
	away := &atomic.Int32{}
	away.Store(missing)
	address := lateSource(t, away)
	synctest.Test(t, func(t *testing.T) {
		published := aVPA("v", "x", time.Hour)
		published.Status = *publishedStatus("a", "4", "4Gi")
		w := withPrometheus(t, newWorld(t, deployment("x"), aPod("p1", "x", "a"), published), address).begin()
		w.loop.Publisher.Tolerance = 0 // or bounds would be those of some pass before
		w.uses("p1", "a", 300, 400)
		held := func() string { _, message := w.condition("v", status.TargetHeld); return message }
		w.passes(10)
		if missing != nothing {
			require.NotEqual(t, backfill.Complete, w.loop.Backfill.Progress().State)
			require.Equal(t, "4", w.recommendations("v")[0].Target.Cpu().String())
			require.Equal(t, "4Gi", w.recommendations("v")[0].Target.Memory().String())
			require.Contains(t, held(), "cpu and memory of container a")
			away.Store(nothing)
			time.Sleep(time.Minute) // it tries again
			synctest.Wait()
		}
		require.Equal(t, backfill.Complete, w.loop.Backfill.Progress().State)
		w.passes(1)
		require.Empty(t, held())
		require.True(t, w.metrics.history.Complete())
		w.passes(9)
		require.EqualValues(t, 2*193, testutil.ToFloat64(w.metrics.past.WithLabelValues("taken")))

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

// History that comes late, in whole or in part, while there is live usage, makes
// what it would have made from the beginning.
func TestHistoryThatComesLateIsAsIfItHadComeInTime(t *testing.T) {
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
