package sketch

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDailyPeaks_MatchesNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p DailyPeaks
		windows := map[int64]float64{}
		now, before := at(0), 0.0
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			now += int64(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 7 * time.Hour, 26 * time.Hour, 20 * 24 * time.Hour}).Draw(t, "step"))
			use := math.Exp(rapid.Float64Range(0, 30).Draw(t, "use"))
			if !p.Empty() && now/window-p.running >= slotsKept {
				before = p.Highest(days)
			}
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
		latest := daily[0]
		if before > 0 && len(daily) < minDailyPeaks {
			daily = append(daily, before)
		}
		require.InEpsilonSlice(t, daily, p.Daily(), 0.002)
		require.InEpsilon(t, windows[now/window], p.CurrentPeak(), 0.002)
		require.InEpsilon(t, latest, p.LastDayPeak(), 0.002)
	})
}

func TestBase_IgnoresOneOutlier(t *testing.T) {
	require.Zero(t, Base(nil))
	require.Equal(t, 9.0, Base([]float64{1, 9, 3}), "too little is known to forgive")
	require.Equal(t, 3.0, Base([]float64{1, 9, 3, 2}))
}

func TestDailyPeaks_JobHistory(t *testing.T) {
	var p DailyPeaks
	day := func(n int) {
		for m := range 5 {
			p.Observe(at(time.Duration(n)*24*time.Hour+time.Duration(m)*time.Minute), float64(20+m*20)*(1<<20))
		}
	}
	for n := range 3 {
		day(n)
	}
	require.Equal(t, 4*time.Hour+4*time.Minute, p.Age(int64(p.last)*minute), "five minutes three times, and less than two hours for each pause")
	p.Observe(at(33*24*time.Hour), 20<<20)
	require.InEpsilonSlice(t, []float64{20 << 20, 100 << 20}, p.Daily(), 0.002)
	require.InEpsilon(t, 100<<20, Base(p.Daily()), 0.002, "the next run needs what the last one did")
	for n := 34; n < 37; n++ {
		day(n)
	}
	require.Len(t, p.Daily(), 4, "then it is known well enough without")
}

func TestDailyPeaks_MergePauses(t *testing.T) {
	life := func(hours ...int) *DailyPeaks {
		p := &DailyPeaks{}
		for _, h := range hours {
			p.Observe(at(time.Duration(h)*time.Hour), 1<<20)
		}
		return p
	}
	for _, tc := range []struct {
		name        string
		a, b, whole *DailyPeaks
	}{
		{name: "later part into earlier part", a: life(0, 5), b: life(9, 12), whole: life(0, 5, 9, 12)},
		{name: "earlier part into later part", a: life(9, 12), b: life(0, 5), whole: life(0, 5, 9, 12)},
		{
			name: "dense history into sparse history",
			a:    life(0, 10), b: life(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), whole: life(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
		},
		{name: "history into empty history", a: life(), b: life(0, 5), whole: life(0, 5)},
		{name: "long pause before the merged part", a: life(0), b: life(600), whole: life(0, 600)},
		{name: "long pause after the merged part", a: life(600), b: life(0), whole: life(0, 600)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.a.merge(tc.b)
			require.Equal(t, tc.whole.Age(int64(tc.whole.last)*minute), tc.a.Age(int64(tc.a.last)*minute))
			require.Equal(t, tc.whole.peakBeforePause, tc.a.peakBeforePause)
		})
	}
}

func TestDailyPeaks_Volatility(t *testing.T) {
	var p DailyPeaks
	p.Observe(at(0), 100)
	require.Zero(t, p.Volatility(p.Daily()), "the first window")
	p.Observe(at(7*time.Hour), 100)
	require.Equal(t, assumedVolatility, p.Volatility(p.Daily()), "one day")
	require.InDelta(t, math.Log(4)/math.Sqrt2, p.Volatility([]float64{100, 400}), 1e-9)
}

func TestDailyPeaks_ReadsImageWithoutPauses(t *testing.T) {
	var p, old DailyPeaks
	for i := range 100 {
		p.Observe(at(time.Duration(i)*time.Minute), float64(i<<20))
	}
	var image imageWriter
	image.Int(p.running)
	image.Codes(p.peaks[:])
	image.Int(p.first)
	image.Float(float64(p.highest))
	image.Float(p.sum)
	image.Float(p.samples)
	r := newImageReader(image)
	old.read(r)
	require.NoError(t, r.Err())
	require.Zero(t, old.last)
	now := at(10 * time.Hour)
	old.Observe(now, 1<<20)
	p.Observe(now, 1<<20)
	require.Equal(t, 10*time.Hour, old.Age(now), "how long it was seen before is not known")
	require.Equal(t, 3*time.Hour, p.Age(now), "eight hours without samples count for one")
	require.Equal(t, p.Daily(), old.Daily())
}

func weeklyPeaks(p *DailyPeaks, from, to int, hour int) {
	for h := from; h < to; h++ {
		use := 100.0
		if h%(7*24) == 6*24+hour {
			use = 900
		}
		p.Observe(at(time.Duration(h)*time.Hour), use*(1<<20))
	}
}

func TestDailyPeaks_RemembersWeeklyPeak(t *testing.T) {
	for _, hour := range []int{0, 2, 5, 6, 13, 23} {
		for _, week := range []int{2, 3, 4} {
			p := &DailyPeaks{}
			weeklyPeaks(p, 0, (week*7+6)*24+hour, hour) // the next weekly peak is about to begin
			require.InEpsilon(t, 900<<20, Base(p.Weekly()), 0.002, "hour %d, week %d", hour, week)
		}
	}
	p := &DailyPeaks{}
	weeklyPeaks(p, 0, 7*24, 2)
	for h := 7 * 24; h < 40*24; h++ {
		p.Observe(at(time.Duration(h)*time.Hour), 100<<20)
	}
	require.InEpsilon(t, 100<<20, Base(p.Weekly()), 0.002, "it is forgotten")
	p = &DailyPeaks{}
	weeklyPeaks(p, 0, 21*24, 2)
	p.Observe(at(60*24*time.Hour), 100<<20)
	require.Zero(t, p.peakTwoWeeksAgo, "after a long pause there is no such window")
}

func TestDailyPeaks_MergesPeakOfTwoWeeksAgo(t *testing.T) {
	whole, early, late := &DailyPeaks{}, &DailyPeaks{}, &DailyPeaks{}
	const now = 20*24 + 2
	weeklyPeaks(whole, 0, now, 2)
	weeklyPeaks(early, 0, 15*24, 2)
	weeklyPeaks(late, 15*24, now, 2)
	for _, pair := range [][2]*DailyPeaks{{early, late}, {late, early}} {
		merged := *pair[0]
		merged.merge(pair[1])
		require.Equal(t, whole.Weekly(), merged.Weekly())
		require.NotZero(t, merged.peakTwoWeeksAgo)
	}
	var w imageWriter
	whole.write(&w)
	var again DailyPeaks
	again.read(newImageReader(w))
	require.Equal(t, *whole, again)
	twice := *whole
	twice.merge(whole)
	require.Equal(t, whole.peakTwoWeeksAgo, twice.peakTwoWeeksAgo)
}
