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
