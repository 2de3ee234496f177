package podqueue

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

func TestServe_SlowNamespaceDoesNotDelayOthers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		workers int
	}{
		{"one worker", 1},
		{"three workers", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := New(time.Minute)
				ctx, stop := context.WithCancel(t.Context())
				var mu sync.Mutex
				served, slow, most, turns := map[string]time.Duration{}, 0, 0, 0
				count := func(by int) {
					mu.Lock()
					defer mu.Unlock()
					if slow += by; by > 0 {
						turns++
					}
					most = max(most, slow)
				}
				began := time.Now()
				due := func(_ context.Context, pod cache.ObjectName, _ time.Time) (time.Duration, error) {
					if pod.Namespace == "slow" {
						count(1)
						time.Sleep(30 * time.Second)
						count(-1)
					}
					mu.Lock()
					defer mu.Unlock()
					served[pod.String()] = time.Since(began)
					return 0, nil
				}
				var running sync.WaitGroup
				running.Go(func() { Serve(ctx, queue, tc.workers, due, "") })
				for range 10 { // each event of a pod adds it again
					for i := range 20 {
						queue.Add(cache.NewObjectName("slow", strconv.Itoa(i)))
					}
					time.Sleep(100 * time.Millisecond)
				}
				queue.Add(cache.NewObjectName("shop", "web"))
				time.Sleep(time.Hour)
				stop()
				running.Wait()
				require.Len(t, served, 21, "in the end all are served")
				require.LessOrEqual(t, turns, 20+tc.workers, "a pod that waits takes one turn for all its events")
				require.Less(t, served["shop/web"], 2*time.Second)
				require.Equal(t, tc.workers, most, "the namespace keeps its workers")
			})
		})
	}
}
