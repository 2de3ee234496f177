package usage

import (
	"fmt"
	"math"
	"math/rand"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// load feeds a store with synthetic, log-normal usage.
type load struct {
	store *Store
	keys  []ContainerKey
	scale []float64
	rand  *rand.Rand
	now   time.Time
}

func newLoad(containers int) *load {
	l := &load{store: NewStore(DefaultConfig()), rand: rand.New(rand.NewSource(1)), now: morning}
	for i := range containers {
		c := ContainerKey{fmt.Sprint("namespace-", i%100), fmt.Sprint("workload-", i/4, "-6d5f7c9b8-", i), "app"}
		l.store.Track(c, SeriesKey{c.Namespace, c.Container, fmt.Sprint("app=workload-", i/4, ",pod=", i)}, l.now)
		l.keys, l.scale = append(l.keys, c), append(l.scale, math.Exp(l.rand.NormFloat64()))
	}
	return l
}

func (l *load) tick(step time.Duration) {
	l.now = l.now.Add(step)
	for i, c := range l.keys {
		noise := math.Exp(l.rand.NormFloat64() / 3)
		at := l.now.Add(time.Duration(i%997) * time.Millisecond)
		l.store.Observe(Sample{Container: c, Kind: resources.CPU, At: at, Amount: resources.Amount(200 * l.scale[i] * noise)})
		l.store.Observe(Sample{Container: c, Kind: resources.Memory, At: at, Amount: resources.Amount(3e8 * l.scale[i] * noise)})
	}
}

func TestObserve_DoesNotAllocateOnceWarm(t *testing.T) {
	l := newLoad(50)
	for range 500 {
		l.tick(time.Hour)
	}
	require.Zero(t, testing.AllocsPerRun(50, func() {
		l.tick(time.Minute)
		for i, c := range l.keys {
			l.store.Track(c, l.store.Key(Series(i)), l.now)
			l.store.SetRules(Series(i), l.store.Rules())
		}
	}))
	scratch := NewProfile(l.store.config.Shape)
	all := []Series{0, 1, 2, 3, 4, 5}
	l.store.Profile(&scratch, all...)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		scratch.Reset()
		l.store.Profile(&scratch, all...)
		l.store.RemovePeaks(&scratch, l.now, all...)
	}))
}

func sizes(b *testing.B, run func(b *testing.B, l *load)) {
	for _, n := range []int{1000, 10000, 100000} {
		b.Run(fmt.Sprint("containers=", n), func(b *testing.B) {
			l := newLoad(n)
			for range 48 {
				l.tick(time.Hour)
			}
			b.ReportAllocs()
			b.ResetTimer()
			run(b, l)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/container")
		})
	}
}

func BenchmarkObserve(b *testing.B) {
	sizes(b, func(b *testing.B, l *load) {
		for range b.N {
			l.tick(time.Minute)
		}
	})
}

func BenchmarkProfile(b *testing.B) {
	sizes(b, func(b *testing.B, l *load) {
		scratch := NewProfile(l.store.config.Shape)
		for range b.N {
			for series := range l.store.All() {
				scratch.Reset()
				l.store.Profile(&scratch, series)
			}
		}
	})
}

func BenchmarkTrack(b *testing.B) {
	sizes(b, func(b *testing.B, l *load) {
		for range b.N {
			for i, c := range l.keys {
				l.store.Track(c, l.store.series.At(Series(i)).key, l.now)
			}
		}
	})
}

// BenchmarkMemory reports the live heap after two days, without the strings of the keys.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{1000, 10000, 100000} {
		b.Run(fmt.Sprint("containers=", n), func(b *testing.B) {
			for range b.N {
				l := newLoad(n)
				for range 48 {
					l.tick(time.Hour)
				}
				var with, without runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&with)
				l.store = nil
				runtime.GC()
				runtime.ReadMemStats(&without)
				b.ReportMetric(float64(with.HeapAlloc-without.HeapAlloc)/float64(n), "B/container")
				runtime.KeepAlive(l)
			}
		})
	}
}
