package compat

import (
	"flag"
	"math"
	"math/rand"
	"runtime"
	"testing"
	"time"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/util"

	"loadline.dev/loadline/pkg/core/histogram"
)

// `make bench-compat` runs these benchmarks and compares both sides. See ./ratios for the required
// ratios.

var rounds = flag.Int("rounds", 1, "rounds of each side of a benchmark")

// inPairs alternates rounds of upstream and Loadline, so that CPU frequency and load from other
// processes are the same within a pair. State lives on from round to round.
func inPairs(b *testing.B, upstream, loadline func(*testing.B)) {
	for range *rounds {
		b.Run("upstream", upstream)
		b.Run("loadline", loadline)
	}
}

// CPU samples added to one histogram, with the clock advanced by a second every 64 samples: in
// production thousands of the 200,000 samples of an iteration share a timestamp. Both sides cache
// per timestamp, so a single histogram measures the same.
func BenchmarkHistogramAdd(b *testing.B) {
	random := rand.New(rand.NewSource(1))
	values := make([]float64, 4096) // a power of two keeps the division out of the measurement
	for i := range values {
		values[i] = 0.2 * math.Exp(random.NormFloat64())
	}
	const sameInstant = 64
	theirs, theirTime := util.NewDecayingHistogram(model.GetAggregationsConfig().CPUHistogramOptions, 24*time.Hour), dayOne
	ours, ourTime := histogram.New(histogram.CPUScheme(), histogram.NewDecay(24*time.Hour)), dayOne
	inPairs(b, func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%sameInstant == 0 {
				theirTime = theirTime.Add(time.Second)
			}
			theirs.AddSample(values[i&(len(values)-1)], 0.1, theirTime)
		}
	}, func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%sameInstant == 0 {
				ourTime = ourTime.Add(time.Second)
			}
			ours.AddAt(values[i&(len(values)-1)], 0.1, histogram.Nanoseconds(ourTime)) // as a profile does
		}
	})
}

// One tick of 100,000 containers: 200,000 samples. Without VPAs, because upstream would also
// observe quality metrics, which are not part of Loadline's store.
func BenchmarkIngestTick(b *testing.B) {
	const pods, samples = 50_000, 50_000 * containersPerPod * 2
	f := newFleet(pods)
	perSample := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/samples, "ns/sample")
	}
	// Both sides include the cost of generating samples. It is measured here so that it can be
	// subtracted.
	b.Run("input", func(b *testing.B) {
		b.ReportAllocs()
		for tick := 0; b.Loop(); tick++ {
			f.samples(tick, func(*event, string, time.Time, int64, int64) {})
		}
		perSample(b)
	})
	u, theirTick := upstreamFleet(b, f, false), 0
	f.addToUpstream(u)
	for ; theirTick < 3; theirTick++ {
		f.tickUpstream(u, theirTick)
	}
	l, ourTick := loadlineFleet(b, f, false), 0
	addToLoadline(l, f.objects())
	for ; ourTick < 300; ourTick++ { // until the histogram windows are wide enough
		f.tickLoadline(l, ourTick)
	}
	inPairs(b, func(b *testing.B) {
		b.ReportAllocs()
		for ; b.Loop(); theirTick++ {
			f.tickUpstream(u, theirTick)
		}
		perSample(b)
	}, func(b *testing.B) {
		b.ReportAllocs()
		for ; b.Loop(); ourTick++ {
			f.tickLoadline(l, ourTick)
		}
		perSample(b)
	})
}

// One iteration over 400 VPAs of 10 containers, all with new data after one and a half days of a
// sample a minute: from usage histories to patches of changed statuses. Ingestion is not timed.
func BenchmarkRecommend(b *testing.B) {
	f := newFleet(2000)
	const begun = 36 * 60 // ticks
	u := upstreamFleet(b, f, true)
	f.addToUpstream(u)
	l := loadlineFleet(b, f, true)
	addToLoadline(l, f.objects())
	for tick := range begun {
		f.tickUpstream(u, tick)
		f.tickLoadline(l, tick)
	}
	u.publish(b, f)
	for range 2 {
		l.publish(b, at(begun))
	}
	u.server.writes, l.server.writes = 0, 0
	theirTick, ourTick := begun, begun
	perPass := func(b *testing.B, writes, passes int) { // of all rounds so far, because one round has too few
		perVPA(b, f)
		b.ReportMetric(float64(writes)/float64(passes)/float64(len(f.vpas)), "writes/VPA")
	}
	inPairs(b, func(b *testing.B) {
		b.ReportAllocs()
		for ; b.Loop(); theirTick++ {
			b.StopTimer()
			f.tickUpstream(u, theirTick)
			b.StartTimer()
			u.publish(b, f)
		}
		perPass(b, u.server.writes, theirTick-begun)
	}, func(b *testing.B) {
		b.ReportAllocs()
		for ; b.Loop(); ourTick++ {
			b.StopTimer()
			f.tickLoadline(l, ourTick)
			b.StartTimer()
			l.publish(b, at(ourTick))
		}
		perPass(b, l.server.writes, ourTick-begun)
	})
}

// The same with every recommendation built, without status.
func BenchmarkBuild(b *testing.B) {
	f := newFleet(5000)
	u, l := grown(b, f)
	inPairs(b, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, p := range f.vpas {
				u.recommend(b, p, p.versions[0])
			}
		}
		perVPA(b, f)
	}, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, v := range l.model.VPAs() {
				l.build(v)
			}
		}
		perVPA(b, f)
	})
}

// Pods added under existing VPAs. Upstream matches each new label set against all VPAs, so it runs
// only with the smaller number.
func BenchmarkAddPods(b *testing.B) {
	few, many := newFleet(5000), newFleet(50_000)
	theirs := func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			b.StopTimer()
			u := upstreamFleet(b, few, true)
			runtime.GC()
			b.StartTimer()
			few.addToUpstream(u)
		}
	}
	ours := func(f fleet) func(b *testing.B) {
		objects := f.objects()
		return func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				b.StopTimer()
				l := loadlineFleet(b, f, true)
				runtime.GC()
				b.StartTimer()
				addToLoadline(l, objects)
			}
		}
	}
	oursFew, oursMany := ours(few), ours(many)
	for range *rounds {
		b.Run("5000/upstream", theirs)
		b.Run("5000/loadline", oursFew)
		b.Run("50000/loadline", oursMany)
	}
}

// Heap of 8,000 containers in 4,000 pods under 800 VPAs after a day with a sample every 10 minutes,
// without informer caches. The time has no meaning here.
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
