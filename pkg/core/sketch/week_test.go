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

func TestHours_Peak(t *testing.T) {
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

func TestHours_Recent(t *testing.T) {
	var h Hours
	for i := range 100 {
		h.Observe(at(time.Duration(i)*time.Minute), float64(i+1))
	}
	require.InEpsilon(t, 97.75, h.Recent(10, 0.75), 0.002, "of 91 to 100")
	require.InEpsilon(t, 92.75, h.Recent(999, 0.75), 0.002, "of 71 to 100")
	require.Zero(t, new(Hours).Recent(10, 0.5))
}

func TestWeighted_ForgetsAfterItsDays(t *testing.T) {
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

// An edited checkpoint can be as large as an annotation allows.
func TestWeighted_RejectsUnorderedBuckets(t *testing.T) {
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
		require.False(t, r.mismatch)
		require.Equal(t, name == "rising", r.Err() == nil, name)
	}
}

func TestPoints_MeanCPUAndPeakMemory(t *testing.T) {
	for k, want := range map[resources.Kind]float64{resources.CPU: 200, resources.Memory: 300} {
		p := newPoints(k, false)
		for i := range 60 {
			p.Observe(at(time.Duration(i)*time.Minute), float64(100+i%5*50), "a")
		}
		p.Observe(at(time.Hour), 1e6, "a")
		h := p.Profile()
		require.Equal(t, 12, h.Points, "the open one does not count")
		require.InEpsilon(t, want, h.Overall.Max, 0.002)
		require.InDelta(t, 55.0/60/24, h.Days, 1e-9)
		require.True(t, h.Known[0])
		require.False(t, h.Known[1])
	}
}

func TestPoints_ComparesPodMeans(t *testing.T) {
	for mean, want := range map[bool]float64{false: 300, true: 200} {
		p := newPoints(resources.CPU, mean)
		for i := range 10 {
			p.Observe(at(time.Duration(i)*time.Minute), 1000*float64(max(0, 1-i%5)), "a") // 200
			p.Observe(at(time.Duration(i)*time.Minute), 1500*float64(max(0, i%5-3)), "b") // 300
			p.Observe(at(time.Duration(i)*time.Minute), 100, "c")
		}
		p.Observe(at(9*time.Minute)-5*int64(time.Minute), 100, "c") // late: counts in the open point
		p.Observe(at(10*time.Minute), 0, "a")
		require.InEpsilon(t, want, p.Profile().Overall.Max, 0.002)
	}
}

func TestPoints_ReadsFormerImage(t *testing.T) {
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
	require.Equal(t, 2, again.Profile().Points)
	require.InEpsilon(t, 300, again.Profile().Overall.P50, 0.002)
}

func TestPointsProfile_MatchesPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := newPoints(resources.CPU, false), at(0)
		for range rapid.IntRange(1, 12).Draw(t, "looks") {
			for range rapid.IntRange(0, 400).Draw(t, "points") {
				now += pointWidth * rapid.SampledFrom([]int64{1, 1, 1, 1, 1, 1, 1, 1, 5, 30}).Draw(t, "step")
				p.Observe(now, rapid.Float64Range(0, 3000).Draw(t, "use"), "")
			}
			if rapid.IntRange(0, 9).Draw(t, "pause") == 0 {
				now += rapid.SampledFrom([]int64{int64(time.Hour), int64(26 * time.Hour), int64(8 * 24 * time.Hour)}).Draw(t, "length")
				p.Observe(now, 1, "")
			}
			got := *p.Profile()
			p.profiledAt, p.sorted, p.profile = 0, nil, UsageProfile{}
			require.Equal(t, *p.Profile(), got)
			require.Equal(t, fromPoints(p), got)
		}
	})
}

func fromPoints(p *Points) (h UsageProfile) {
	var all SortedAmounts
	var hourly [24]SortedAmounts
	first, last := int64(math.MaxInt64), int64(0)
	for number := max(p.running-points+1, 0); number < p.running; number++ {
		if code := p.uses[number%points]; code != 0 {
			use, hour := scales[p.kind].decode(code), time.Unix(0, number*pointWidth).UTC().Hour()
			all, hourly[hour] = append(all, use), append(hourly[hour], use)
			first, last = min(first, number), max(last, number)
		}
	}
	for hour, of := range hourly {
		slices.Sort(of)
		h.Known[hour], h.Hourly[hour] = len(of) > 0, QuantilesOf(of)
	}
	slices.Sort(all)
	h.Overall = QuantilesOf(all)
	h.Assess(len(all), time.Duration(max(last-first, 0)*pointWidth).Hours()/24)
	return h
}

func BenchmarkPoints_Profile(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	p, now := newPoints(resources.CPU, false), at(0)
	next := func() {
		now += pointWidth
		p.Observe(now, 1000*random.ExpFloat64(), "")
	}
	for range points {
		next()
	}
	b.ReportAllocs()
	for b.Loop() {
		next()
		p.Profile()
	}
}
