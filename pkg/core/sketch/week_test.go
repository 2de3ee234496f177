package sketch

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestHours(t *testing.T) {
	var h Hours
	use := func(d time.Duration, v float64) { h.Observe(at(d), v) }
	use(0, 90)
	use(5*time.Hour, 70)
	for d := 6 * time.Hour; d < 24*time.Hour; d += time.Hour {
		use(d, 10)
	}
	use(24*time.Hour, 10)
	require.InEpsilon(t, 90, h.Peak(), 0.002, "this hour, yesterday")
	use(26*time.Hour, 10)
	require.InEpsilon(t, 10, h.Peak(), 0.002)
	use(7*24*time.Hour, 10)
	require.InEpsilon(t, 90, h.Peak(), 0.002, "this hour, a week ago")
	use(8*24*time.Hour, 10)
	require.InEpsilon(t, 10, h.Peak(), 0.002)
}

func TestRecentMinutes(t *testing.T) {
	var h Hours
	for i := range 100 {
		h.Observe(at(time.Duration(i)*time.Minute), float64(i+1))
	}
	require.InEpsilon(t, 97.75, h.Recent(10, 0.75), 0.002, "of 91 to 100")
	require.InEpsilon(t, 92.75, h.Recent(999, 0.75), 0.002, "of 71 to 100")
	require.Zero(t, new(Hours).Recent(10, 0.5))
}

func TestWeightedForgetsAfterItsDays(t *testing.T) {
	shape := NewWeightedShape([resources.Kinds]float64{0.1, 100 << 20}, [resources.Kinds]float64{100, 104857600000}, 0.00001, [resources.Kinds]time.Duration{7 * 24 * time.Hour, 7 * 24 * time.Hour})
	w := newWeighted(shape, resources.CPU)
	w.Observe(at(0), 5000)
	for i := range 7 {
		w.Observe(at(time.Duration(i)*24*time.Hour), 50)
	}
	require.InEpsilon(t, 5.1, w.Quantile(0.99), 1e-9)
	w.Observe(at(8*24*time.Hour), 50)
	require.InEpsilon(t, 0.1, w.Quantile(0.99), 1e-9)
	require.Len(t, w.days, 7)
}

// An image that somebody else made may be as large as an annotation.
func TestBucketsThatAreNotInOrderAreRefused(t *testing.T) {
	shape := NewWeightedShape([resources.Kinds]float64{0.1, 100 << 20}, [resources.Kinds]float64{100, 104857600000}, 0.00001, [resources.Kinds]time.Duration{7 * 24 * time.Hour, 7 * 24 * time.Hour})
	for name, buckets := range map[string][]int64{"falling": {5, 4}, "twice": {5, 5}, "rising": {4, 5}} {
		var image imageWriter
		image.Float(0.1)
		image.Int(1)
		image.Int(start.Unix() / 86400)
		image.Int(2)
		for _, b := range buckets {
			image.Int(b)
			image.Float(1)
		}
		r := newImageReader(image)
		newWeighted(shape, resources.CPU).read(r)
		require.False(t, r.other)
		require.Equal(t, name == "rising", r.Err() == nil, name)
	}
}

func TestPointsAreMeansOfCPUAndPeaksOfMemory(t *testing.T) {
	for k, want := range map[resources.Kind]float64{resources.CPU: 200, resources.Memory: 300} {
		p := newPoints(k, false)
		for i := range 60 {
			p.Observe(at(time.Duration(i)*time.Minute), float64(100+i%5*50), "a")
		}
		p.Observe(at(time.Hour), 1e6, "a")
		h := p.Habits()
		require.Equal(t, 12, h.Points, "the open one does not count")
		require.InEpsilon(t, want, h.Overall.Max, 0.002)
		require.InDelta(t, 55.0/60/24, h.Days, 1e-9)
		require.True(t, h.Known[0])
		require.False(t, h.Known[1])
	}
}

func TestNoNumbersAreNoSamples(t *testing.T) {
	h := NewHabits([]int64{0, 3600, 7200}, []float64{math.NaN(), math.Inf(1), 2})
	require.Equal(t, 1, h.Points)
	require.InDelta(t, 2.0/24, h.Days, 1e-12)
	require.Zero(t, NewHabits(nil, nil).Points)
}

// A pod's use of CPU is its mean over the five minutes; the pods are compared after that.
func TestPodsThatTakeTurnsAreNoSum(t *testing.T) {
	for mean, want := range map[bool]float64{false: 300, true: 200} {
		p := newPoints(resources.CPU, mean)
		for i := range 10 {
			p.Observe(at(time.Duration(i)*time.Minute), 1000*float64(max(0, 1-i%5)), "a") // 200
			p.Observe(at(time.Duration(i)*time.Minute), 1500*float64(max(0, i%5-3)), "b") // 300
			p.Observe(at(time.Duration(i)*time.Minute), 100, "c")
		}
		p.Observe(at(9*time.Minute)-5*int64(time.Minute), 100, "c") // late: it counts in the open point
		p.Observe(at(10*time.Minute), 0, "a")
		require.InEpsilon(t, want, p.Habits().Overall.Max, 0.002)
	}
}

// A checkpoint from before pods were distinguished is good for all its points.
func TestPointsOfBeforeAreRead(t *testing.T) {
	var image imageWriter
	p := newPoints(resources.CPU, false)
	for i := range 7 {
		p.Observe(at(time.Duration(i)*time.Minute), 300, "a")
	}
	image.Int(p.running)
	image.Float(600)
	image.Float(2)
	image.Codes(p.uses[:])
	again := newPoints(resources.CPU, false)
	again.read(newImageReader(image))
	again.Observe(at(10*time.Minute), 1, "a")
	require.Equal(t, 2, again.Habits().Points)
	require.InEpsilon(t, 300, again.Habits().Overall.P50, 0.002)
}

// They are those of the values in order, whatever these are and however many.
func TestQuantilesAreThoseOfTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(0, 5), rapid.SampledFrom([]float64{0, 1, 2})), 1, 300).Draw(t, "values")
		ordered := slices.Sorted(slices.Values(values))
		at := func(q float64) float64 { return between(ordered, q) }
		require.Equal(t, Quantiles{at(0.5), at(0.9), at(0.95), at(0.99), at(1)}, quantiles(values))
	})
}

// Each rank comes to its place, also where values were chosen so that this takes long.
func TestPlace(t *testing.T) {
	const n = 3000
	pipe, same := make([]float64, n), make([]float64, n)
	for i := range pipe {
		pipe[i] = float64(min(i, n-i))
	}
	for name, values := range map[string][]float64{"pipe": pipe, "same": same, "killer": killer(n)} {
		for _, rank := range []int{0, 1, n / 2, n - 2, n - 1} {
			mixed := slices.Clone(values)
			place(mixed, rank)
			want := slices.Sorted(slices.Values(values))[rank]
			require.InDelta(t, want, mixed[rank], 0, "%s %d", name, rank)
			require.LessOrEqual(t, slices.Max(append([]float64{want}, mixed[:rank]...)), want, name)
			require.GreaterOrEqual(t, slices.Min(mixed[rank:]), want, name)
		}
	}
}

// killer returns values of which the median of the first, the middle and the last one is
// nearly the least of what is left, time and again.
func killer(n int) []float64 {
	values := make([]float64, n)
	for i := range n / 2 {
		values[i] = float64(i + 1)
		if i%2 == 1 {
			values[i] = float64(n/2 + i)
		}
		values[n/2+i] = float64(2 * (i + 1))
	}
	return values
}

// BenchmarkHabits is what a week costs that is looked at anew.
func BenchmarkHabits(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	at, use := make([]int64, points-1), make([]float64, points-1)
	for i := range at {
		at[i], use[i] = int64(i)*300, random.ExpFloat64()
	}
	b.ReportAllocs()
	for b.Loop() {
		NewHabits(at, use)
	}
}
