package recipe

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// These tests are the cases of the study that can be verified by hand. Peaks are stored to a
// thousandth, rounded up.

const (
	mib  = 1 << 20
	five = 5 * time.Minute
)

var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func parsed(t testing.TB, text string) *Recipe {
	t.Helper()
	r, err := Parse(text)
	require.NoError(t, err)
	return &r
}

// life is a container under a recipe, with a sample every five minutes.
type life struct {
	recipe *Recipe
	sketch *sketch.Sketch
	at     time.Time
}

func live(t testing.TB, text string) *life {
	if !strings.Contains(text, ":") {
		text += ":"
	}
	r := parsed(t, text+",pod-min-memory=0")
	return &life{recipe: r, sketch: sketch.New(r.Needs), at: start}
}

func (l *life) use(k resources.Kind, a resources.Amount, length time.Duration) {
	for end := l.at.Add(length); l.at.Before(end); l.at = l.at.Add(five) {
		l.sketch.Observe(l.at, k, a, 0)
	}
}

func (l *life) bounds() resources.Bounds {
	l.sketch.Now = l.at.UnixNano()
	return l.recipe.Recommend(Input{Sketch: l.sketch, Containers: 1}).Bounds
}

func (l *life) memory() float64 { return float64(l.bounds().Target.Value(resources.Memory)) / mib }

func TestLoadline_IgnoresMemoryOutlierAfterADay(t *testing.T) {
	const day = 24 * time.Hour
	l := live(t, "loadline:memory=default")
	l.use(resources.Memory, 100*mib, 11*day)
	require.InEpsilon(t, 110.00, l.memory(), 0.002, "no volatility, and no longer new")
	l.use(resources.Memory, 100*mib, day+6*time.Hour+30*time.Minute)
	l.use(resources.Memory, 400*mib, five)
	l.use(resources.Memory, 100*mib, 17*time.Hour+25*time.Minute)
	require.InEpsilon(t, 440.00, l.memory(), 0.002, "the highest of the last day, and a tenth")
	l.use(resources.Memory, 100*mib, day)
	require.InEpsilon(t, 115.56, l.memory(), 0.002, "volatility 0.3705: a margin of 0.10 + 0.15 x 0.3705")
	l.use(resources.Memory, 100*mib, 4*day)
	l.use(resources.Memory, 400*mib, five)
	l.use(resources.Memory, 100*mib, 3*day)
	require.Greater(t, l.memory(), 440.0, "a second one within two weeks is none")
	l.use(resources.Memory, 100*mib, 20*day)
	require.InEpsilon(t, 110.00, l.memory(), 0.002)
}

func TestLoadline_NewContainerMargin(t *testing.T) {
	flat := live(t, "loadline:memory=default")
	flat.use(resources.Memory, 200*mib, time.Hour)
	require.InEpsilon(t, 246.73, flat.memory(), 0.002, "0.10 and 0.15 x 2^(-1/6)")
	restless := live(t, "loadline:memory=default")
	restless.use(resources.Memory, 100*mib, 30*time.Minute)
	restless.use(resources.Memory, 200*mib, five)
	restless.use(resources.Memory, 100*mib, 25*time.Minute)
	require.InEpsilon(t, 548.26, restless.memory(), 0.002, "mean 108.33: (0.15 + 2 x 0.8462) x 0.8909")
}

// During its first hour a container keeps its declared memory if that exceeds 200 MiB plus 0.10 and
// the margin for new containers: 246.73 MiB at the end of the hour.
func TestLoadline_NewContainerKeepsDeclaredMemory(t *testing.T) {
	for _, tc := range []struct {
		name          string
		recipe        string
		declared      resources.Amount // MiB
		before, after float64          // the hour is over
	}{
		{name: "declared memory is kept for an hour", recipe: "loadline", declared: 1000, before: 1000, after: 246.73},
		{name: "declared memory is kept for two hours", recipe: "loadline:declared-hours=2", declared: 1000, before: 1000, after: 1000},
		{name: "declared memory is not kept", recipe: "loadline:declared-hours=0", declared: 1000, before: 247.18, after: 246.73},
		{name: "low declared memory", recipe: "loadline", declared: 240, before: 247.18, after: 246.73},
		{name: "no declared memory", recipe: "loadline", declared: 0, before: 247.18, after: 246.73},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.recipe)
			l.sketch.SetDeclared(tc.declared * mib)
			l.use(resources.Memory, 200*mib, 55*time.Minute)
			require.InEpsilon(t, tc.before, l.memory(), 0.002)
			l.use(resources.Memory, 200*mib, five)
			require.InEpsilon(t, tc.after, l.memory(), 0.002)
		})
	}
}

// Twelve days of 100 MiB have no volatility and no margin for new containers.
func TestLoadline_MarginFollowsLimit(t *testing.T) {
	const long = 12 * 24 * time.Hour
	for _, tc := range []struct {
		name       string
		recipe     string
		limitRatio sketch.LimitRatio
		want       float64 // MiB
		step       string  // first words of the step
	}{
		{
			name: "limit equal to the request", recipe: "loadline", limitRatio: 100, want: 120,
			step: "margin 0.2 (limit 1 x request) + 0.15 x volatility",
		},
		{name: "limit of 1.05", recipe: "loadline", limitRatio: 105, want: 117.5, step: "margin 0.175 (limit 1.05 x request)"},
		{name: "limit of 1.1", recipe: "loadline", limitRatio: 110, want: 115, step: "margin 0.15 (limit 1.1 x request)"},
		{name: "limit of 1.2", recipe: "loadline", limitRatio: 120, want: 110, step: "margin 0.1 (limit 1.2 x request)"},
		{
			name: "limit of 1.2 with the default preset", recipe: "loadline:memory=default", limitRatio: 120, want: 110,
			step: "margin 0.1 (limit 1.2 x request)",
		},
		{name: "limit of 1.19", recipe: "loadline", limitRatio: 119, want: 110.5, step: "margin 0.105 (limit 1.19 x request)"},
		{name: "limit of 1.21", recipe: "loadline", limitRatio: 121, want: 110, step: "margin 0.1 (limit 1.21 x request)"},
		{name: "limit of 2", recipe: "loadline", limitRatio: 200, want: 110, step: "margin 0.1 (limit 2 x request)"},
		{name: "limit of 500", recipe: "loadline", limitRatio: 50000, want: 110, step: "margin 0.1 (limit 500 x request)"},
		{
			name: "no limit follows", recipe: "loadline", limitRatio: sketch.NoLimitRatio, want: 110,
			step: "margin 0.1 (no limit follows the request)",
		},
		{
			name: "unknown limit", recipe: "loadline", limitRatio: sketch.UnknownRatio, want: 110,
			step: "margin 0.1 (the limit is not known yet)",
		},
		{name: "safe preset", recipe: "loadline:memory=safe", limitRatio: 200, want: 120, step: "margin 0.2 + 0.15 x volatility"},
		{name: "equal preset", recipe: "loadline:memory=equal", limitRatio: 100, want: 105, step: "margin 0 + 0.15 x volatility"},
		{name: "lean preset", recipe: "loadline:memory=lean", limitRatio: 100, want: 105, step: "margin 0 + 0 x volatility"},
		{name: "fixed margin", recipe: "loadline:margin=0.1", limitRatio: 100, want: 110, step: "margin 0.1 + 0.15 x volatility"},
		{
			name: "fixed margin of the default preset", recipe: "loadline:memory=default,margin=0.3", limitRatio: 100, want: 130,
			step: "margin 0.3 + 0.15 x volatility",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.recipe)
			l.sketch.SetLimitRatio(tc.limitRatio)
			l.use(resources.Memory, 100*mib, long)
			require.InEpsilon(t, tc.want, l.memory(), 0.002)
			l.sketch.Now = l.at.UnixNano()
			steps := l.recipe.Explain(Input{Sketch: l.sketch, Containers: 1}).Target[resources.Memory]
			require.Contains(t, steps[1].Step, tc.step)
			require.InEpsilon(t, tc.want, max(steps[1].Amount, steps[2].Amount)/mib, 0.002)
		})
	}
}

func TestLoadline_MarginIsContinuous(t *testing.T) {
	l, before := live(t, "loadline"), 0.0
	l.use(resources.Memory, 100*mib, 2*24*time.Hour)
	l.use(resources.Memory, 50*mib, 2*24*time.Hour) // so that the last day does not decide
	for h := sketch.LimitRatio(100); h < 400; h++ {
		l.sketch.SetLimitRatio(h)
		is := l.memory()
		if h > 100 {
			require.LessOrEqual(t, is, before, "limitRatio %d", h)
			require.Less(t, before-is, 0.6, "limitRatio %d", h)
		}
		before = is
	}
}

func TestLoadline_ShareOfLoadAndTime(t *testing.T) {
	for _, tc := range []struct {
		name   string
		recipe string
		want   float64
	}{
		{name: "tracking below the share of the burst", recipe: "loadline:cpu=tracking,share=0.899,fast-share=0,half-life-hours=1000",
			want: 1.0113},
		{name: "calm below the share of the burst", recipe: "loadline:cpu=calm,factor=1,share=0.40,fast-share=0,half-life-hours=1000",
			want: 1.0113},
		{name: "share above the time before the burst",
			recipe: "loadline:sustained-minutes=0,factor=1,share=0.75,fast-share=0.4,half-life-hours=1000", want: 10.3745},
		{name: "share with a factor", recipe: "loadline:sustained-minutes=0,factor=1.05,share=0.75,fast-share=0,half-life-hours=1000",
			want: 10.3745 * 1.05},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.recipe)
			for i := range 10 {
				l.use(resources.CPU, 1000+9000*resources.Amount(i/9), five)
			}
			require.InEpsilon(t, tc.want, float64(l.bounds().Target.Value(resources.CPU))/1000, 0.002)
		})
	}
}

func TestLoadlineTracking_KeepsPeakOfLastHour(t *testing.T) {
	l := live(t, "loadline:cpu=tracking")
	l.use(resources.CPU, 2000, 6*time.Hour)
	high := l.bounds().Target.Value(resources.CPU)
	l.use(resources.CPU, 100, 50*time.Minute)
	require.InEpsilon(t, float64(high), float64(l.bounds().Target.Value(resources.CPU)), 0.01)
	l.use(resources.CPU, 100, 12*time.Hour)
	require.Less(t, l.bounds().Target.Value(resources.CPU), high/2)
}

func TestLoadline_BoundsAreTight(t *testing.T) {
	l := live(t, "loadline:cpu=calm")
	l.use(resources.CPU, 1000, 5*24*time.Hour)
	b := l.bounds()
	target := float64(b.Target.Value(resources.CPU))
	require.InDelta(t, 0.85*target, float64(b.Lower.Value(resources.CPU)), 1)
	require.InDelta(t, 1.5*target, float64(b.Upper.Value(resources.CPU)), 1)
	l.use(resources.Memory, 100*mib, 24*time.Hour)
	b = l.bounds()
	target = float64(b.Target.Value(resources.Memory))
	require.InDelta(t, 0.95*target, float64(b.Lower.Value(resources.Memory)), 1)
	require.InDelta(t, 1.3*target, float64(b.Upper.Value(resources.Memory)), 1)
}

func TestLoadline_OOMKillRaisesMemory(t *testing.T) {
	for _, tc := range []struct {
		name        string
		limit, peak float64
	}{
		{name: "peak a fifth above the limit", limit: 500, peak: 600},
		{name: "peak 16 MiB above the limit", limit: 40, peak: 56},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, "loadline:memory=lean,cold=0,restless=0")
			l.use(resources.Memory, 10*mib, 12*time.Hour)
			l.sketch.ObserveKill(l.at, mib, resources.Amount(tc.limit*mib))
			require.InEpsilon(t, tc.peak*1.05, l.memory(), 0.002, "the limit counts, not the request")
		})
	}
}

func TestLoadline_UsageAtLimitCountsDouble(t *testing.T) {
	l := live(t, "loadline:cpu=calm")
	for range 100 {
		l.sketch.Observe(l.at, resources.CPU, 980, 1000)
		l.at = l.at.Add(five)
	}
	require.Greater(t, l.bounds().Target.Value(resources.CPU), resources.Amount(2000), "it says only that more was wanted")
	free := live(t, "loadline:cpu=calm")
	for range 100 {
		free.sketch.Observe(free.at, resources.CPU, 970, 1000)
		free.at = free.at.Add(five)
	}
	require.Less(t, free.bounds().Target.Value(resources.CPU), resources.Amount(1100))
}

func TestParse(t *testing.T) {
	for _, name := range Names() {
		r := parsed(t, name)
		for k := range resources.Kinds {
			require.NotEmpty(t, r.Target[k], name)
			require.NotEmpty(t, r.Lower[k], name)
			require.NotEmpty(t, r.Upper[k], name)
		}
	}
	require.Equal(t, "cpu quantile 0.95", parsed(t, "vpa:target-cpu=0.95, margin=0.3").Target[resources.CPU][0].Name)
	require.Equal(t, resources.NewList(10, 8*mib), parsed(t, "crane:pod-min-cpu=10,pod-min-memory=8").Minimum(1))
	_, err := Parse("soup:salt=1")
	require.EqualError(t, err, `recipe "soup" does not exist: must be one of vpa, loadline, crane, attune, attune-published, cruisekube, autopilot`)
	_, err = Parse("loadline:cpu=frantic,margin=x,share=2,salt=1,factor,cold=1,cold=2")
	for _, text := range []string{
		`cpu is "frantic": must be one of calm, calm-lean,`, `margin is "x": must be a number from -0.5 to 10`,
		`share is "2": must be a number from 0 to 1`, `"salt" does not exist: must be one of base, base-minutes, cold, cold-hours, cpu, cpu-lower,`,
		`"factor" has no value: want NAME=VALUE`, "cold is there twice",
	} {
		require.ErrorContains(t, err, text)
	}
}

func TestRecipes_BoundsAreOrdered(t *testing.T) {
	for _, name := range Names()[1:] {
		l := live(t, name+":pod-min-cpu=1")
		for i := range 3000 {
			l.sketch.Observe(l.at, resources.CPU, resources.Amount(i*7919%1500), 0)
			l.sketch.Observe(l.at, resources.Memory, resources.Amount(i*104729%900)*mib, 0)
			if i%500 == 499 {
				l.sketch.ObserveKill(l.at, 800*mib, 960*mib)
			}
			l.at = l.at.Add(five)
			if i%97 != 0 {
				continue
			}
			b := l.bounds()
			e := l.recipe.Explain(Input{Sketch: l.sketch, Containers: 1})
			for k := range resources.Kind(resources.Kinds) {
				require.LessOrEqual(t, b.Lower.Value(k), b.Target.Value(k), "%s %s", name, k)
				require.LessOrEqual(t, b.Target.Value(k), b.Upper.Value(k), "%s %s", name, k)
				require.Equal(t, b.Target.Value(k), resources.FromFloat(e.Target[k][len(e.Target[k])-1].Amount))
				require.Equal(t, b.Lower.Value(k), resources.FromFloat(e.Lower[k][len(e.Lower[k])-1].Amount))
			}
		}
	}
}
