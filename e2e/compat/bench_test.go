package compat

import (
	"fmt"
	"math"
	"math/rand"
	"runtime"
	"testing"
	"time"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/util"

	"loadline.dev/loadline/pkg/core/histogram"
)

// `make bench-compat` runs these and compares the two sides of each; see
// ./ratios for what is required.

// CPU samples added to one histogram, the clock going on by a second with each
// 64th. So they come in production: the 200,000 of a pass were taken at a few
// distinct seconds, thousands at each. A histogram gets one of them and the next
// histogram the next, which is the same for what the two sides remember of an
// instant. Both get the same values at the same times.
func BenchmarkHistogramAdd(b *testing.B) {
	random := rand.New(rand.NewSource(1))
	values := make([]float64, 4096) // a power of two, lest the division is measured
	for i := range values {
		values[i] = 0.2 * math.Exp(random.NormFloat64())
	}
	const sameInstant = 64
	b.Run("upstream", func(b *testing.B) {
		h := util.NewDecayingHistogram(model.GetAggregationsConfig().CPUHistogramOptions, 24*time.Hour)
		at := dayOne
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%sameInstant == 0 {
				at = at.Add(time.Second)
			}
			h.AddSample(values[i&(len(values)-1)], 0.1, at)
		}
	})
	b.Run("loadline", func(b *testing.B) {
		h := histogram.New(histogram.CPUScheme(), histogram.NewDecay(24*time.Hour))
		at := dayOne
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%sameInstant == 0 {
				at = at.Add(time.Second)
			}
			h.AddAt(values[i&(len(values)-1)], 0.1, histogram.Nanoseconds(at)) // as a profile does it
		}
	})
}

// One tick of 100,000 containers: 200,000 samples. Without VPAs, so that upstream
// does not observe quality metrics, which in ours is not part of the store.
func BenchmarkIngestTick(b *testing.B) {
	const pods, samples = 50_000, 50_000 * containersPerPod * 2
	f := newFleet(pods)
	perSample := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/samples, "ns/sample")
	}
	// What making up the samples costs is in both; it is shown so that it can be
	// taken off.
	b.Run("input", func(b *testing.B) {
		b.ReportAllocs()
		for tick := 0; b.Loop(); tick++ {
			f.samples(tick, func(*event, string, time.Time, int64, int64) {})
		}
		perSample(b)
	})
	b.Run("upstream", func(b *testing.B) {
		u := upstreamFleet(b, f, false)
		f.addToUpstream(u)
		for tick := range 3 {
			f.tickUpstream(u, tick)
		}
		b.ReportAllocs()
		for tick := 3; b.Loop(); tick++ {
			f.tickUpstream(u, tick)
		}
		perSample(b)
	})
	b.Run("loadline", func(b *testing.B) {
		l := loadlineFleet(b, f, false)
		addToLoadline(l, f.objects())
		for tick := range 300 { // until the windows of the histograms are wide enough
			f.tickLoadline(l, tick)
		}
		b.ReportAllocs()
		for tick := 300; b.Loop(); tick++ {
			f.tickLoadline(l, tick)
		}
		perSample(b)
	})
}

// A pass over 400 VPAs of 10 containers each, all with new data, after one and
// a half days of a sample a minute: from the histories to the patches of those statuses that have
// to be written, on the way that each side takes in production. What comes in
// between passes does not count.
func BenchmarkRecommend(b *testing.B) {
	f := newFleet(2000)
	const begun = 36 * 60 // ticks
	b.Run("upstream", func(b *testing.B) {
		u := upstreamFleet(b, f, true)
		f.addToUpstream(u)
		for tick := range begun {
			f.tickUpstream(u, tick)
		}
		u.publish(b, f)
		u.server.writes = 0
		b.ReportAllocs()
		for tick := begun; b.Loop(); tick++ {
			b.StopTimer()
			f.tickUpstream(u, tick)
			b.StartTimer()
			u.publish(b, f)
		}
		perVPA(b, f)
		b.ReportMetric(float64(u.server.writes)/float64(b.N)/float64(len(f.vpas)), "writes/VPA")
	})
	b.Run("loadline", func(b *testing.B) {
		l := loadlineFleet(b, f, true)
		addToLoadline(l, f.objects())
		for tick := range begun {
			f.tickLoadline(l, tick)
		}
		for range 2 {
			l.publish(b, at(begun))
		}
		l.server.writes = 0
		b.ReportAllocs()
		for tick := begun; b.Loop(); tick++ {
			b.StopTimer()
			f.tickLoadline(l, tick)
			b.StartTimer()
			l.publish(b, at(tick))
		}
		perVPA(b, f)
		b.ReportMetric(float64(l.server.writes)/float64(b.N)/float64(len(f.vpas)), "writes/VPA")
	})
}

// What the same costs if every recommendation is built, without status.
func BenchmarkBuild(b *testing.B) {
	f := newFleet(5000)
	b.Run("upstream", func(b *testing.B) {
		u := upstreamFleet(b, f, true)
		f.addToUpstream(u)
		for tick := range 100 {
			f.tickUpstream(u, 10*tick)
		}
		b.ReportAllocs()
		for b.Loop() {
			for _, p := range f.vpas {
				u.recommend(b, p, p.versions[0])
			}
		}
		perVPA(b, f)
	})
	b.Run("loadline", func(b *testing.B) {
		l := loadlineFleet(b, f, true)
		addToLoadline(l, f.objects())
		for tick := range 100 {
			f.tickLoadline(l, 10*tick)
		}
		b.ReportAllocs()
		for b.Loop() {
			for _, v := range l.model.VPAs() {
				l.build(v)
			}
		}
		perVPA(b, f)
	})
}

// Pods that appear under VPAs that are there. Upstream offers each new label set
// to all VPAs, so it is tried with the smaller number only.
func BenchmarkAddPods(b *testing.B) {
	for _, pods := range []int{5000, 50_000} {
		f := newFleet(pods)
		objects := f.objects()
		b.Run(fmt.Sprint(pods, "/loadline"), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				b.StopTimer()
				l := loadlineFleet(b, f, true)
				runtime.GC()
				b.StartTimer()
				addToLoadline(l, objects)
			}
		})
		if pods > 5000 {
			continue
		}
		b.Run(fmt.Sprint(pods, "/upstream"), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				b.StopTimer()
				u := upstreamFleet(b, f, true)
				runtime.GC()
				b.StartTimer()
				f.addToUpstream(u)
			}
		})
	}
}

// What 8,000 containers in 4,000 pods under 800 VPAs need after a day of samples,
// one every 10 minutes, without the objects that informers keep on both sides.
// The time means nothing here.
func BenchmarkHeap(b *testing.B) {
	const pods, ticks = 4000, 144
	f := newFleet(pods)
	objects := f.objects()
	measure := func(b *testing.B, build func() any) {
		for range b.N {
			before := liveHeap()
			kept := build()
			b.ReportMetric(float64(liveHeap()-before)/(pods*containersPerPod), "B/container")
			runtime.KeepAlive(kept)
			runtime.KeepAlive(objects)
		}
	}
	b.Run("upstream", func(b *testing.B) {
		measure(b, func() any {
			u := upstreamFleet(b, f, true)
			f.addToUpstream(u)
			for tick := range ticks {
				f.tickUpstream(u, 10*tick)
			}
			return u
		})
	})
	b.Run("loadline", func(b *testing.B) {
		measure(b, func() any {
			l := loadlineFleet(b, f, true)
			addToLoadline(l, objects)
			for tick := range ticks {
				f.tickLoadline(l, 10*tick)
			}
			return l
		})
	})
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
