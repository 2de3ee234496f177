package testkit

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"sync"
	"syscall"
	"testing"
	"time"
)

// crowds returns a small cluster and the two in docs/scale.md, without and with a SizingPolicy.
func crowds() (all []Crowd) {
	for _, c := range []Crowd{
		{Pods: 5_000, Deployments: 1_000, Revisions: 11, Nodes: 200},
		{Pods: 50_000, Deployments: 10_000, Revisions: 11, Nodes: 2_000},
		{Pods: 150_000, Deployments: 20_000, Revisions: 11, Nodes: 5_000},
	} {
		under := c
		under.UnderAPolicy = true
		all = append(all, c, under)
	}
	return all
}

func (c Crowd) String() string {
	if c.UnderAPolicy {
		return fmt.Sprintf("%d_pods_under_a_policy", c.Pods)
	}
	return fmt.Sprintf("%d_pods", c.Pods)
}

// MeasureHeap measures the heap of a program that watches each cluster through an API server at
// url, after fill has filled its caches. closing is called after the measurement.
func MeasureHeap(b *testing.B, fill func(b *testing.B, url string, c Crowd) (closing func())) {
	for _, c := range crowds() {
		b.Run(c.String(), func(b *testing.B) {
			url := ServeCrowd(b, &CrowdServer{Crowd: c})
			for range b.N {
				before := LiveHeap()
				stop := peakHeap()
				closing := fill(b, url, c)
				highest := stop()
				live := LiveHeap() - before
				b.ReportMetric(float64(live)/(1<<20), "live-MiB")
				b.ReportMetric(float64(highest-before)/(1<<20), "peak-MiB")
				b.ReportMetric(float64(live)/float64(c.Pods), "B/pod")
				b.ReportMetric(0, "ns/op")
				closing()
			}
		})
	}
}

// LiveHeap returns the bytes of reachable heap objects, after garbage collection frees no more.
func LiveHeap() (live int64) {
	for stable, collections := 0, 0; stable < 3 && collections < 50; collections++ {
		runtime.GC()
		time.Sleep(20 * time.Millisecond) // cleanups of a collection release objects for the next one
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if before := live; int64(m.HeapAlloc) < before-before/1000 || before == 0 {
			stable = 0
		} else {
			stable++
		}
		live = int64(m.HeapAlloc)
	}
	return live
}

// CPUTime returns the CPU time of the process, which is independent of the load of other processes.
func CPUTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peakHeap samples the live heap until stop, which returns the peak in bytes, server included.
func peakHeap() (stop func() int64) {
	var done sync.WaitGroup
	end, highest := make(chan struct{}), int64(0)
	done.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				metrics.Read(sample)
				highest = max(highest, int64(sample[0].Value.Uint64()))
			}
		}
	})
	return func() int64 {
		close(end)
		done.Wait()
		return highest
	}
}

// ServeCrowd starts an API server for a test.
func ServeCrowd(tb testing.TB, s *CrowdServer) (url string) {
	tb.Helper()
	server := httptest.NewServer(s)
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
