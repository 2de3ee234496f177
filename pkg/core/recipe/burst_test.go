package recipe

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// A container that uses 60 millicores, and 5 cores in bursts, gets a target for one of the two
// levels: 1.05 times the ends of the buckets, 0.0611 and 5.2201 cores. Once both levels are seen,
// neighboring buckets merge, and the lower one ends at 0.0661.
const low, lowWithHigh, high resources.Amount = 64, 69, 5481

// targets returns the target after each minute for pods that burst together.
func targets(t testing.TB, text string, pods, days int, bursts func(minute int) bool) (all []resources.Amount) {
	r := parsed(t, text)
	s := sketch.New(r.Needs)
	for m := range days * 24 * 60 {
		use := resources.Amount(60)
		if bursts(m) {
			use = 5000
		}
		for p := range pods {
			s.ObservePod(fmt.Sprint(p), start.Add(time.Duration(m)*time.Minute), resources.CPU, use, 0)
		}
		all = append(all, r.Recommend(Input{Sketch: s, Containers: 1}).Bounds.Target.Value(resources.CPU))
	}
	return all
}

// A level counts only if usage exceeded it for 15 minutes in total.
func TestLoadline_IgnoresSingleBurst(t *testing.T) {
	const h, days = 60, 7
	const end = days * 24 * h
	type span struct {
		from, to int // minutes
		high     bool
	}
	for _, tc := range []struct {
		name   string
		bursts func(minute int) bool
		wants  []span
		before int // minute of the first high target without the rule
	}{
		{
			name: "2 minutes once", bursts: func(m int) bool { return m >= 6*h && m < 6*h+2 },
			wants:  []span{{to: end}},
			before: 6*h + 1,
		},
		{
			name: "14 minutes once", bursts: func(m int) bool { return m >= 6*h && m < 6*h+14 },
			wants:  []span{{to: end}},
			before: 6*h + 1,
		},
		{
			name: "20 minutes once", bursts: func(m int) bool { return m >= 6*h && m < 6*h+20 },
			wants:  []span{{to: 6*h + 15}, {from: 6*h + 15, to: 24 * h, high: true}, {from: 30 * h, to: end}},
			before: 6*h + 1,
		},
		{
			name: "10 minutes a day", bursts: func(m int) bool { return m%(24*h)/10 == 6*h/10 },
			wants:  []span{{to: 30*h + 5}, {from: 30*h + 9, to: 30*h + 10, high: true}, {from: 78 * h, to: end, high: true}},
			before: 6*h + 1,
		},
		{
			name: "one minute an hour", bursts: func(m int) bool { return m%h == 30 },
			wants:  []span{{to: 12 * h}, {from: 24 * h, to: end, high: true}},
			before: 30,
		},
		{
			name: "all days but the first", bursts: func(m int) bool { return m >= 24*h },
			wants:  []span{{to: 24*h + 15}, {from: 24*h + 15, to: end, high: true}},
			before: 24*h + 4,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, pods := range []int{1, 10} {
				all := targets(t, "loadline", pods, days, tc.bursts)
				for _, want := range tc.wants {
					for m, target := range all[want.from:want.to] {
						expected := []resources.Amount{low, lowWithHigh}
						if want.high {
							expected = []resources.Amount{high}
						}
						require.Contains(t, expected, target, "%d pods, minute %d", pods, want.from+m)
					}
				}
			}
			without := targets(t, "loadline:sustained-minutes=0", 1, 2, tc.bursts)
			require.NotEqual(t, high, without[tc.before-1])
			require.Equal(t, high, without[tc.before], "without the rule")
		})
	}
}

func TestLoadline_IgnoresStaggeredStartupBursts(t *testing.T) {
	r := parsed(t, "loadline")
	s := sketch.New(r.Needs)
	for m := range 24 * 60 {
		for p := range 10 {
			use := resources.Amount(60)
			if m == 12*60+p {
				use = 5000
			}
			s.ObservePod(fmt.Sprint(p), start.Add(time.Duration(m)*time.Minute), resources.CPU, use, 0)
		}
		target := r.Recommend(Input{Sketch: s, Containers: 1}).Bounds.Target.Value(resources.CPU)
		require.Contains(t, []resources.Amount{low, lowWithHigh}, target, m)
	}
}

// During the first hour, a quarter of the known time is enough.
func TestLoadline_CountsInitialLoadAtOnce(t *testing.T) {
	always := targets(t, "loadline", 1, 1, func(int) bool { return true })
	require.Equal(t, high, always[0])
	require.Equal(t, high, always[len(always)-1])
	started := targets(t, "loadline", 1, 1, func(m int) bool { return m < 2 })
	require.Equal(t, high, started[1])
	require.Equal(t, lowWithHigh, started[12])
	require.Equal(t, lowWithHigh, started[len(started)-1])
}

func TestSustainedMinutes_PerRecipe(t *testing.T) {
	once := func(m int) bool { return m >= 6*60 && m < 6*60+12 }
	for _, tc := range []struct {
		name   string
		recipe string
		counts bool
	}{
		{name: "loadline", recipe: "loadline"},
		{name: "calm", recipe: "loadline:cpu=calm"},
		{name: "lean calm", recipe: "loadline:cpu=calm-lean"},
		{name: "safe calm", recipe: "loadline:cpu=calm-safe"},
		{name: "mixed", recipe: "loadline:cpu=mixed"},
		{name: "shorter than the burst", recipe: "loadline:sustained-minutes=7", counts: true},
		{name: "calm without sustained minutes", recipe: "loadline:cpu=calm,sustained-minutes=0", counts: true},
		{name: "safe calm shorter than the burst", recipe: "loadline:cpu=calm-safe,sustained-minutes=7", counts: true},
		{name: "tracking", recipe: "loadline:cpu=tracking", counts: true},
		{name: "tracking with sustained minutes", recipe: "loadline:cpu=tracking,sustained-minutes=15"},
		{name: "autopilot", recipe: "autopilot", counts: true},
		{name: "autopilot with sustained minutes", recipe: "autopilot:sustained-minutes=15"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := targets(t, tc.recipe, 1, 1, once)
			require.Equal(t, tc.counts, all[6*60+11] > 3000, "%d", all[6*60+11])
		})
	}
	require.Equal(t, "0.75 of the load, half-life 48h, exceeded for 15 min in all", parsed(t, "loadline").Target[resources.CPU][0].Name)
	require.Equal(t, "0.75 of the load, half-life 48h", parsed(t, "loadline:sustained-minutes=0").Target[resources.CPU][0].Name)
	require.Equal(t, "0.95 of the load, half-life 12h", parsed(t, "autopilot").Target[resources.CPU][0].Name)
	_, err := Parse("loadline:sustained-minutes=-1")
	require.ErrorContains(t, err, `sustained-minutes is "-1": must be a number from 0 to 1000`)
}

// A container is large from a calm target of 4 cores until it falls below 3.2 cores.
func TestLoadlineMixed_TracksLargeContainers(t *testing.T) {
	mixed, calm, tracking := live(t, "loadline:cpu=mixed"), live(t, "loadline"), live(t, "loadline:cpu=tracking")
	use := func(a resources.Amount, length time.Duration) {
		for _, l := range []*life{mixed, calm, tracking} {
			l.use(resources.CPU, a, length)
		}
	}
	says := func() string {
		mixed.sketch.Now = mixed.at.UnixNano()
		return mixed.recipe.Explain(Input{Sketch: mixed.sketch, Containers: 1}).Target[resources.CPU][3].Step
	}
	cpu := func(l *life) resources.Amount { return l.bounds().Target.Value(resources.CPU) }
	use(3600, 3*day)
	require.Less(t, cpu(calm), resources.Amount(4000))
	require.Equal(t, cpu(calm), cpu(mixed), "small so far")
	require.Equal(t, "calm, as that was not above 4 cores, or was below 3.2 since", says())
	use(6000, day)
	use(1000, day)
	require.Greater(t, cpu(calm), resources.Amount(6000))
	require.InEpsilon(t, float64(cpu(tracking)), float64(cpu(mixed)), 0.06)
	require.Less(t, cpu(mixed), resources.Amount(1200))
	require.Equal(t, "tracking, as calm was above 4 cores and not below 3.2 since: the highest of 0.6 of the time, half-life 12h, 0.9 of the time, half-life 1h, and the last hour", says())
}

func TestLoadlineMixed_HasHysteresis(t *testing.T) {
	const between = 3500 // millicores, a target of 3.7 cores
	for before, large := range map[resources.Amount]bool{6000: true, 2000: false} {
		l := live(t, "loadline:cpu=mixed")
		l.use(resources.CPU, before, day)
		l.use(resources.CPU, between, 9*day)
		require.InDelta(t, 3700, float64(l.recipe.Target[resources.CPU][:3].Run(Subject{Sketch: l.sketch}, nil)), 100)
		require.Equal(t, large, l.sketch.Tracked.Large())
		target := l.bounds()
		again, err := sketch.Read(l.recipe.Needs, l.sketch.Image(), l.at, 0)
		require.NoError(t, err)
		l.sketch = again
		require.Equal(t, target, l.bounds(), "read from its checkpoint")
		require.Equal(t, large, l.sketch.Tracked.Large())
		l.use(resources.CPU, between, five)
		require.Equal(t, large, l.sketch.Tracked.Large(), "and decided anew")
		l.use(resources.CPU, 2000, 9*day)
		require.False(t, l.sketch.Tracked.Large())
	}
}
