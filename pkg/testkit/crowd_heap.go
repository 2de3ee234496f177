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

// crowds are the clusters that programs are measured with: a small one, and the two
// whose heaps docs/scale.md gives, each without a SizingPolicy and under one.
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

// MeasureHeap measures what fill leaves on the heap of a program that watches each cluster of crowds through an API
// server at url. What fill returns is kept until that was measured, and then closed.
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

// LiveHeap returns the bytes on the heap that are still needed, once collections free no more.
func LiveHeap() (live int64) {
	for stable, collections := 0, 0; stable < 3 && collections < 50; collections++ {
		runtime.GC()
		time.Sleep(20 * time.Millisecond) // cleanups of a collection release objects for the next
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

// CPUTime is what the process has used of the processors, which other programs on the machine do not lengthen.
func CPUTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peakHeap watches the heap until the function that it returns is called, which
// returns the most bytes that a collection left. The server's own are among them.
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
