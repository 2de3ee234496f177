package trail

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/amount"
)

var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) int64 { return start.Add(d).UnixNano() }

func TestCodesAreWithinAThousandth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(1, 1e16).Draw(t, "amount")
		got := decode(encode(v))
		require.GreaterOrEqual(t, got, v*(1-1e-6))
		require.LessOrEqual(t, got, v*step*(1+1e-6))
	})
	require.Zero(t, decode(0))
	require.Equal(t, 1.0, decode(encode(0)), "nothing is something: it was observed")
}

// The ring must give what a list of all windows gives.
func TestPeaksAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Peaks
		windows := map[int64]float64{}
		now := at(0)
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			now += int64(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 7 * time.Hour, 26 * time.Hour, 20 * 24 * time.Hour}).Draw(t, "step"))
			use := math.Exp(rapid.Float64Range(0, 30).Draw(t, "use"))
			p.Observe(now, use)
			windows[now/window] = max(windows[now/window], use)
		}
		var daily []float64
		for ago := range int64(days) {
			peak := 0.0
			for i := range int64(perDay) {
				peak = max(peak, windows[now/window-ago*perDay-i])
			}
			if peak > 0 {
				daily = append(daily, peak)
			}
		}
		require.InEpsilonSlice(t, daily, p.Daily(), 0.002)
		require.InEpsilon(t, windows[now/window], p.Running(), 0.002)
		require.InEpsilon(t, daily[0], p.Day(), 0.002)
	})
}

func TestBaseForgivesOneOutlier(t *testing.T) {
	require.Zero(t, Base(nil))
	require.Equal(t, 9.0, Base([]float64{1, 9, 3}), "too little is known to forgive")
	require.Equal(t, 3.0, Base([]float64{1, 9, 3, 2}))
}

func TestVolatility(t *testing.T) {
	var p Peaks
	p.Observe(at(0), 100)
	require.Zero(t, p.Volatility(p.Daily()), "the first window")
	p.Observe(at(7*time.Hour), 100)
	require.Equal(t, unsure, p.Volatility(p.Daily()), "one day")
	require.InDelta(t, math.Log(4)/math.Sqrt2, p.Volatility([]float64{100, 400}), 1e-9)
}

func TestKillsKeepTheLatest(t *testing.T) {
	var k Kills
	_, found := k.Largest(at(0), time.Hour)
	require.False(t, found)
	for i := range 6 {
		k.add(at(time.Duration(i)*time.Hour), amount.Amount(600-i*100))
	}
	largest, found := k.Largest(at(5*time.Hour), 24*time.Hour)
	require.True(t, found)
	require.Equal(t, amount.Amount(400), largest, "of the last four")
	largest, _ = k.Largest(at(5*time.Hour), time.Hour)
	require.Equal(t, amount.Amount(200), largest)
	_, found = k.Largest(at(7*time.Hour), time.Hour)
	require.False(t, found)
}

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
	shape := NewWeightedShape([amount.Kinds]float64{0.1, 100 << 20}, [amount.Kinds]float64{100, 104857600000}, 0.00001, 7*24*time.Hour)
	w := NewWeighted(shape, amount.CPU)
	w.Observe(at(0), 5000)
	for i := range 7 {
		w.Observe(at(time.Duration(i)*24*time.Hour), 50)
	}
	require.InEpsilon(t, 5.1, w.Quantile(0.99), 1e-9)
	w.Observe(at(8*24*time.Hour), 50)
	require.InEpsilon(t, 0.1, w.Quantile(0.99), 1e-9)
	require.Len(t, w.days, 7)
}

func TestPointsAreMeansOfCPUAndPeaksOfMemory(t *testing.T) {
	for k, want := range map[amount.Kind]float64{amount.CPU: 200, amount.Memory: 300} {
		p := NewPoints(k)
		for i := range 60 {
			p.Observe(at(time.Duration(i)*time.Minute), float64(100+i%5*50))
		}
		p.Observe(at(time.Hour), 1e6)
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

func TestLevels(t *testing.T) {
	l := NewLoad(NewLoadShape([2]time.Duration{48 * time.Hour, 4 * time.Hour}, [2]float64{0.75, 0.5}, true, false))
	require.Zero(t, l.Level(0))
	for i := range 20000 {
		l.Observe(at(time.Duration(i)*time.Minute), float64(100+i%900))
	}
	require.Greater(t, l.Level(0), l.Level(1)*0.9)
	require.Equal(t, "0.75 of the load, half-life 48h", l.shape.Name(0))
}
