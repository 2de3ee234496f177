package histogram

import (
	"math"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const day = 24 * time.Hour

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

func TestScheme_Find(t *testing.T) {
	cpu, memory := CPUScheme(), MemoryScheme()
	require.Equal(t, 176, cpu.Buckets())
	require.Equal(t, 176, memory.Buckets())
	for v, want := range map[float64]int{
		0: 0, -1: 0, 0.00999999: 0, 0.01: 1, 0.0205: 1, 1: 36, 1000: 174, 5000: 175, math.Inf(1): 175, math.Inf(-1): 0,
	} {
		require.Equal(t, want, cpu.Find(v), "cores %v", v)
	}
	require.Equal(t, 0, cpu.Find(math.NaN()))
	require.Equal(t, 17, memory.Find(262144000))
	require.Equal(t, 174, memory.Find(1e12))
	require.Equal(t, 0.020499999999999987, cpu.Start(2))
	require.Equal(t, 1021.1094089048601, cpu.Start(175))
}

// Find takes a shortcut through the leading bits, also next to a bucket start, where the logarithm
// is off by one.
func TestSchemeFind_MatchesLogarithm(t *testing.T) {
	for _, s := range []*Scheme{CPUScheme(), MemoryScheme(), NewExponentialScheme(1, 1.01, 100, 0.1), NewExponentialScheme(1, 1.002, 9, 0.1), NewExponentialScheme(1, 1.04, 1e5, 0.1), NewExponentialScheme(3, 2.5, 1e6, 0.1)} {
		model := newDense(s, 0)
		for i := range s.Buckets() {
			bits := math.Float64bits(s.Start(i))
			for near := -300; near <= 300 && i > 0; near++ {
				v := math.Float64frombits(bits + uint64(near))
				if model.find(v) != s.Find(v) {
					require.Equal(t, model.find(v), s.Find(v), "%v", v)
				}
			}
		}
		rapid.Check(t, func(t *rapid.T) {
			v := rapid.Float64Range(0, 2*s.Start(s.Buckets()-1)).Draw(t, "value")
			require.Equal(t, model.find(v), s.Find(v))
		})
	}
}

func TestScheme_Linear(t *testing.T) {
	s := NewExponentialScheme(0.3, 1, 5, 0.001)
	require.Equal(t, 18, s.Buckets())
	require.Equal(t, 1, s.Find(0.3))
	require.Equal(t, 17, s.Find(6))
	require.Equal(t, 5.1, s.Start(17))
}

func TestQuantile_TiesPickLowerBucket(t *testing.T) {
	h := New(NewExponentialScheme(1, 1, 10, 0.001), NewDecay(0))
	require.True(t, h.Empty())
	require.Zero(t, h.Quantile(0.5))
	for v := 1.0; v <= 4; v++ {
		h.Add(v, 1, time.Time{})
	}
	for q, want := range map[float64]float64{0: 2, 0.25: 2, 0.2500001: 3, 0.75: 4, 1: 5} {
		require.Equal(t, want, h.Quantile(q), "quantile %v", q)
	}
}

func TestQuantile_LastBucketReturnsItsStart(t *testing.T) {
	h := New(NewExponentialScheme(1, 1, 10, 0.001), NewDecay(0))
	h.Add(2.5, 0.5, time.Time{})
	h.Add(500, 3, time.Time{})
	require.Equal(t, 3.0, h.Quantile(0.1))
	require.Equal(t, 10.0, h.Quantile(0.15))
}

func TestReference_RoundsToHalfLife(t *testing.T) {
	h := New(CPUScheme(), NewDecay(day))
	require.True(t, h.Image().Reference.IsZero())
	h.Add(0.3, 0.1, instant(t, "2024-03-10T13:30:00Z"))
	require.Equal(t, instant(t, "2024-03-11T00:00:00Z"), h.Image().Reference)
	require.InDelta(t, 0.0738, h.Image().Total, 1e-4)
	h.Add(0.9, 0.1, instant(t, "2024-03-11T13:30:00Z"))
	require.Equal(t, Image{
		Reference: instant(t, "2024-03-11T00:00:00Z"),
		Total:     0.2215239218909249,
		Weights:   map[int]uint32{18: 5000, 34: 10000},
	}, h.Image())
}

func TestAdd_WeightDoublesEveryHalfLife(t *testing.T) {
	h := New(MemoryScheme(), NewDecay(day))
	for i := range 4 {
		h.Add(1e8*float64(4-i), 1, instant(t, "2024-01-01T00:00:00Z").Add(time.Duration(i)*day))
	}
	require.Equal(t, 15.0, h.Image().Total)
}

func TestReference_MovesAfterHundredHalfLives(t *testing.T) {
	h := New(CPUScheme(), NewDecay(time.Hour))
	h.Add(2, 1, instant(t, "2024-05-01T00:10:00Z"))
	h.Add(4, 1, instant(t, "2024-05-05T04:00:00Z"))
	require.Equal(t, instant(t, "2024-05-01T00:00:00Z"), h.Image().Reference, "100 are not more than 100")
	h.Add(4, 1, instant(t, "2024-05-05T04:20:00Z"))
	image := h.Image()
	require.Equal(t, instant(t, "2024-05-05T04:00:00Z"), image.Reference)
	require.Equal(t, map[int]uint32{62: 10000}, image.Weights, "the first sample has vanished")
}

func TestAdd_LightSampleCountsInTotalOnly(t *testing.T) {
	h := New(CPUScheme(), NewDecay(day))
	h.Add(1, 0.1, instant(t, "2024-05-20T00:00:00Z"))
	h.Add(8, 0.1, instant(t, "2024-05-08T00:00:00Z"))
	require.Equal(t, 0.10002441406250001, h.Image().Total)
	require.Equal(t, map[int]uint32{36: 10000}, h.Image().Weights)
	require.Equal(t, CPUScheme().Start(37), h.Quantile(1))
}

func TestHistogram_EpsilonIsInclusive(t *testing.T) {
	h := New(NewExponentialScheme(1, 1, 10, 0.5), NewDecay(0))
	h.Add(2, 0.5, time.Time{})
	require.False(t, h.Empty())
	require.Equal(t, 3.0, h.Quantile(1))
	h.Add(2, 0.5, time.Time{})
	h.Subtract(2, 0.5, time.Time{})
	require.False(t, h.Empty(), "just as much is left")
	require.Equal(t, Image{Total: 0.5, Weights: map[int]uint32{2: 10000}}, h.Image())
	h.Subtract(2, 0.25, time.Time{})
	require.True(t, h.Empty())
	require.Zero(t, h.Image().Total)
}

func TestSubtract_UndoesAdd(t *testing.T) {
	at := instant(t, "2024-05-20T07:00:00Z")
	h := New(MemoryScheme(), NewDecay(day))
	h.Add(3e8, 1, at)
	h.Add(9e8, 1, at)
	h.Subtract(9e8, 1, at)
	require.Equal(t, MemoryScheme().Start(MemoryScheme().Find(3e8)+1), h.Quantile(1))
	h.Subtract(3e8, 1, at)
	require.True(t, h.Empty())
	require.Zero(t, h.Image().Total)
	h.Subtract(5e8, 1, at) // never added
	require.True(t, h.Empty())
}

func TestDecay_CacheIsConsistentAcrossWorkers(t *testing.T) {
	decay := NewDecay(day)
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			for i := range 20_000 {
				age := int64(i*7919+worker) % 9973 * int64(time.Minute)
				if got, want := decay.power(age), math.Exp2(float64(age)/float64(day)); got != want {
					assert.Equal(t, want, got, "age %d", age)
				}
			}
		})
	}
	workers.Wait()
	require.Equal(t, 1.0, decay.power(0))
}

// The cache must not be used if the reference moves first or the age overflows.
func TestDecay_CachesAgesOnly(t *testing.T) {
	const false777 = 777
	first := Nanoseconds(instant(t, "2024-05-20T00:00:00Z"))
	const hour = int64(time.Hour)
	for _, tc := range []struct {
		name          string
		halfLife      time.Duration
		reference, at int64
		remembered    bool
	}{
		{name: "an hour later", halfLife: day, reference: first, at: first + hour, remembered: true},
		{name: "an hour earlier", halfLife: day, reference: first, at: first - hour, remembered: true},
		{name: "a hundred half-lives", halfLife: time.Hour, reference: first, at: first + 100*hour, remembered: true},
		{name: "more than a hundred half-lives", halfLife: time.Hour, reference: first, at: first + 100*hour + 1},
		{name: "a hundred half-lives overflow", halfLife: 1200 * day, reference: first + hour, at: first + 2*hour},
		{name: "no sample yet", halfLife: day, reference: Never, at: first},
		{name: "age overflows", halfLife: day, reference: math.MaxInt64, at: Never},
	} {
		t.Run(tc.name, func(t *testing.T) {
			add := func(d *Decay) Image {
				h := New(CPUScheme(), d)
				require.NoError(t, h.Load(Image{Reference: Time(tc.reference), Total: 3, Weights: map[int]uint32{40: 10000}}))
				h.AddAt(1, 1, tc.at)
				return h.Image()
			}
			warm, cold := NewDecay(tc.halfLife), NewDecay(tc.halfLife)
			warm.store(tc.at-tc.reference, false777)
			if tc.remembered {
				require.Equal(t, 3.0+false777, add(warm).Total)
			} else {
				require.Equal(t, add(cold), add(warm))
			}
		})
	}
}

func TestMergeInto_PanicsOnDifferentHistograms(t *testing.T) {
	a, b, c := New(CPUScheme(), NewDecay(day)), New(CPUScheme(), NewDecay(time.Hour)), New(MemoryScheme(), NewDecay(day))
	require.Panics(t, func() { a.MergeInto(&b) })
	require.Panics(t, func() { a.MergeInto(&c) })
	d := New(CPUScheme(), NewDecay(day))
	require.NotPanics(t, func() { a.MergeInto(&d) }, "schemes need not be the same object")
}

func TestMergeInto_MatchesCombinedAdds(t *testing.T) {
	scheme := CPUScheme()
	rapid.Check(t, func(t *rapid.T) {
		both, left, right := New(scheme, NewDecay(day)), New(scheme, NewDecay(day)), New(scheme, NewDecay(day))
		at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, mcpu := range rapid.SliceOf(rapid.IntRange(0, 4000)).Draw(t, "millicores") {
			h := &left
			if mcpu%2 == 1 {
				h = &right
			}
			h.Add(float64(mcpu)/1000, 1, at)
			both.Add(float64(mcpu)/1000, 1, at)
		}
		merged := New(scheme, NewDecay(day))
		left.MergeInto(&merged)
		right.MergeInto(&merged)
		for _, q := range []float64{0, 0.5, 0.9, 1} {
			require.Equal(t, both.Quantile(q), merged.Quantile(q))
		}
	})
}

func TestNanoseconds_SaturatesOutOfRangeTimes(t *testing.T) {
	for _, year := range []int{2, 1000, 1677} {
		at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		require.Equal(t, Never, Nanoseconds(at), "year %d", year)
	}
	require.Equal(t, int64(math.MaxInt64), Nanoseconds(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))
	require.EqualValues(t, 9_100_000_000_000_000_005, Nanoseconds(time.Unix(9_100_000_000, 5)), "in the years that barely fit")
	require.Equal(t, Never, Nanoseconds(time.Time{}))
	require.True(t, Time(Never).IsZero())
	at := instant(t, "2024-05-20T07:00:00Z")
	require.Equal(t, at, Time(Nanoseconds(at)))

	h := New(CPUScheme(), NewDecay(day))
	for _, year := range []int{2024, 9999, 1, 1000} {
		h.Add(1, 1, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		require.False(t, math.IsNaN(h.Image().Total) || math.IsInf(h.Image().Total, 0))
	}
}

// A dense histogram takes 1,408 bytes.
func TestHistogram_MemoryIsSmall(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	h := New(CPUScheme(), NewDecay(day))
	at := instant(t, "2024-05-20T00:00:00Z")
	for i := range 8 * 1440 {
		h.Add(0.2*math.Exp(r.NormFloat64()/4), 0.1, at.Add(time.Duration(i)*time.Minute))
	}
	require.Less(t, cap(h.weights)*8, 300)
}

func TestAdd_DoesNotAllocateOnceWarm(t *testing.T) {
	h, scratch := New(CPUScheme(), NewDecay(day)), New(CPUScheme(), NewDecay(day))
	at := instant(t, "2024-05-20T00:00:00Z")
	for i := range 40 {
		h.Add(float64(i)/10, 1, at)
	}
	h.MergeInto(&scratch)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		at = at.Add(time.Hour)
		h.Add(1.5, 1, at)
		h.Subtract(1.5, 1, at)
		scratch.Reset()
		h.MergeInto(&scratch)
		scratch.Quantile(0.9)
	}))
}

func BenchmarkAdd(b *testing.B) {
	values := make([]float64, 1024)
	r := rand.New(rand.NewSource(1))
	for i := range values {
		values[i] = 0.2 * math.Exp(r.NormFloat64())
	}
	at := instant(b, "2024-05-20T00:00:00Z")
	b.Run("window", func(b *testing.B) {
		b.ReportAllocs()
		h := New(CPUScheme(), NewDecay(day))
		for i := range b.N {
			h.Add(values[i%1024], 0.1, at.Add(time.Duration(i)*time.Millisecond))
		}
	})
	b.Run("dense", func(b *testing.B) {
		b.ReportAllocs()
		d := newDense(CPUScheme(), day)
		for i := range b.N {
			d.add(values[i%1024], 0.1, at.Add(time.Duration(i)*time.Millisecond))
		}
	})
}

func BenchmarkMergeAndThreeQuantiles(b *testing.B) {
	h, scratch := New(CPUScheme(), NewDecay(day)), New(CPUScheme(), NewDecay(day))
	at := instant(b, "2024-05-20T00:00:00Z")
	for i := range 100 {
		h.Add(float64(i)/50, 0.1, at)
	}
	b.ReportAllocs()
	for range b.N {
		scratch.Reset()
		h.MergeInto(&scratch)
		scratch.Quantile(0.5)
		scratch.Quantile(0.9)
		scratch.Quantile(0.95)
	}
}

func TestMergeInto_IgnoresDecayedBuckets(t *testing.T) {
	at := instant(t, "2026-03-02T08:00:00Z")
	old, young := New(MemoryScheme(), NewDecay(day)), New(MemoryScheme(), NewDecay(day))
	for value, weight := range map[float64]float64{1e8: 0.0002, 1e9: 100, 9e9: 0.0002} {
		old.Add(value, weight, at)
	}
	require.Greater(t, old.Quantile(1), 8e9)
	young.Add(1e9, 1, at.Add(10*day))
	want := young.Quantile(0.5)
	old.MergeInto(&young)
	require.Equal(t, want, young.Quantile(0))
	require.Equal(t, want, young.Quantile(1))
}

func TestHistogram_ReleasesDecayedBuckets(t *testing.T) {
	at := instant(t, "2026-03-02T08:00:00Z")
	for name, order := range map[string][2]float64{"at the start": {1e8, 1e9}, "at the end": {1e9, 1e8}} {
		h := New(MemoryScheme(), NewDecay(time.Hour))
		h.Add(order[0], 1, at)
		h.Add(order[1], 1, at)
		require.Greater(t, len(h.weights), 20, name)
		h.Add(order[1], 1, at.Add(1200*time.Hour))
		require.Len(t, h.weights, 1, name)
	}
}
