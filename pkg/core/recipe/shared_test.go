package recipe

import (
	"compress/gzip"
	"encoding/csv"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/core/sketch"
)

func TestParse_SharingRules(t *testing.T) {
	for text, want := range map[string]*sharing.Rule{
		"vpa": nil, "loadline": nil, "loadline:cpu=mixed": nil, "loadline:pooling=largest,leave-at=0.5": nil, "autopilot": nil, "crane": nil, "attune": nil,
		"cruisekube":                                     {Pooling: sharing.LargestHeadroom},
		"loadline:cpu=shared":                            {Pooling: sharing.RootSumSquares, EvictAbove: 1},
		"loadline:cpu=shared,memory=following":           {Pooling: sharing.RootSumSquares, EvictAbove: 1},
		"loadline:cpu=shared,pooling=largest,leave-at=0": {Pooling: sharing.LargestHeadroom},
	} {
		require.Equal(t, want, parsed(t, text).Sharing, text)
		require.Equal(t, want, parsed(t, text).ForKind(resources.Memory).Sharing, text)
	}
	require.True(t, parsed(t, "loadline:cpu=shared,memory=following").SeparateMemoryLimit)
	require.False(t, parsed(t, "loadline:cpu=shared").SeparateMemoryLimit)
	_, err := Parse("loadline:cpu=shared,base=75,base-minutes=60,pooling=sum,leave-at=85,peak=both")
	for _, problem := range []string{
		`base is "75": must be a number from 0 to 1`, `base-minutes is "60": must be a number from 1 to 30`, `leave-at is "85": must be a number from 0 to 1`,
		`pooling is "sum": must be one of root, largest`, `peak is "both": must be one of larger, calm, hours`,
	} {
		require.ErrorContains(t, err, problem)
	}
}

func (l *life) minutes(a resources.Amount, length time.Duration) {
	for end := l.at.Add(length); l.at.Before(end); l.at = l.at.Add(time.Minute) {
		l.sketch.Observe(l.at, resources.CPU, a, 0)
	}
}

func (l *life) cpu() (base, peak, highest float64) {
	b := l.bounds()
	return float64(b.Lower.Value(resources.CPU)), float64(b.Target.Value(resources.CPU)), float64(b.Upper.Value(resources.CPU))
}

// 0.9 cores for two minutes are too short for calm, but count in the weekly hours. 104 and 333 are
// the next powers of 1.05 after 100 and 325.
func TestLoadlineShared_BaseAndPeak(t *testing.T) {
	l := live(t, "loadline:cpu=shared,pod-min-cpu=0")
	l.minutes(100, 34*time.Hour)
	l.minutes(900, 2*time.Minute)
	l.minutes(100, 88*time.Minute) // 11:30
	base, peak, highest := l.cpu()
	require.Equal(t, 104.0, base)
	require.InDelta(t, 900, peak, 1.5, "of the last hour")
	require.InDelta(t, 900, highest, 1.5)

	l.minutes(100, 2*time.Hour)
	base, peak, highest = l.cpu()
	require.Equal(t, 104.0, base)
	require.InDelta(t, 105, peak, 6, "what calm requests, which knows of a twentieth")
	require.InDelta(t, 900, highest, 1.5, "of seven days")

	l.minutes(100, 21*time.Hour) // 10:30 of the next day
	_, peak, _ = l.cpu()
	require.InDelta(t, 900, peak, 1.5, "at this hour of the day")

	l.minutes(400, 3*time.Minute)
	base, _, _ = l.cpu()
	require.Equal(t, 333.0, base, "of seven minutes of 100 and three of 400")
	five := parsed(t, "loadline:cpu=shared,pod-min-cpu=0,base-minutes=5")
	require.Equal(t, resources.Amount(404), five.Recommend(Input{Sketch: l.sketch, Containers: 1}).Bounds.Lower.Value(resources.CPU), "of two and three")
	half := parsed(t, "loadline:cpu=shared,pod-min-cpu=0,base=0.5")
	require.Equal(t, resources.Amount(104), half.Recommend(Input{Sketch: l.sketch, Containers: 1}).Bounds.Lower.Value(resources.CPU))

	l.minutes(100, 7*24*time.Hour)
	_, _, highest = l.cpu()
	require.InDelta(t, 400, highest, 1.5, "the 900 are forgotten")
}

func TestLoadlineShared_PeakSettings(t *testing.T) {
	for _, tc := range []struct {
		name         string
		text         string
		burst, level float64 // peak half an hour after a burst, and where the level of yesterday was higher
	}{
		{name: "larger of calm and hours", text: "loadline:cpu=shared", burst: 900, level: 525},
		{name: "hours only", text: "loadline:cpu=shared,peak=hours", burst: 900, level: 100},
		{name: "calm only", text: "loadline:cpu=shared,peak=calm", burst: 105, level: 525},
		{name: "CruiseKube", text: "cruisekube", burst: 900, level: 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			burst, level := live(t, tc.text), live(t, tc.text)
			burst.minutes(100, 34*time.Hour)
			burst.minutes(900, 2*time.Minute)
			burst.minutes(100, 28*time.Minute)
			_, peak, _ := burst.cpu()
			require.InEpsilon(t, tc.burst, peak, 0.06)
			level.minutes(500, 12*time.Hour)
			level.minutes(100, 5*time.Hour)
			base, peak, _ := level.cpu()
			require.InEpsilon(t, tc.level, peak, 0.06)
			require.LessOrEqual(t, base, peak)
		})
	}
}

// Half a core with 20 % pressure needs 0.6 cores as base and peak. The base stays at the peak,
// although the next step of its grid is 627 millicores.
func TestLoadlineShared_PressureRaisesBaseAndPeak(t *testing.T) {
	l := live(t, "loadline:cpu=shared,peak=hours")
	l.usePressure(500, 0.2, time.Hour)
	base, peak, highest := l.cpu()
	require.InDelta(t, 600, peak, 2)
	require.Equal(t, peak, base)
	require.Equal(t, peak, highest)
	l.minutes(100, 5*time.Hour)
	base, peak, highest = l.cpu()
	require.InDelta(t, 101, peak, 1)
	require.Equal(t, peak, base)
	require.InDelta(t, 600, highest, 2, "of seven days, and not the 500 that were used")
}

func TestShared_RoundsFractionsUp(t *testing.T) {
	for _, text := range []string{"cruisekube", "loadline:cpu=shared,peak=hours,pod-min-cpu=0"} {
		for use := 1; use < 300; use++ {
			l := live(t, text)
			l.usePressure(resources.Amount(use), 0.3, 10*time.Minute)
			base, peak, _ := l.cpu()
			require.GreaterOrEqual(t, base, 1.3*float64(use), text)
			require.GreaterOrEqual(t, peak, base, text)
		}
	}
}

func TestLoadlineShared_IgnoresStartupUsage(t *testing.T) {
	l := live(t, "loadline:cpu=shared")
	l.minutes(100, time.Hour)
	l.sketch.ObserveStart("new", l.at, 4000, 0)
	l.minutes(100, 10*time.Minute)
	_, peak, highest := l.cpu()
	require.Less(t, peak, 120.0)
	require.Less(t, highest, 120.0)
}

func TestLoadlineShared_ExplainNamesSteps(t *testing.T) {
	l := live(t, "loadline:cpu=shared")
	l.minutes(100, 34*time.Hour)
	l.minutes(900, 3*time.Minute)
	l.sketch.Now = l.at.UnixNano()
	in := Input{Sketch: l.sketch, Containers: 1}
	b, e := l.recipe.Recommend(in).Bounds, l.recipe.Explain(in)
	steps := func(values []Value) (names []string) {
		for _, v := range values {
			names = append(names, v.Step)
		}
		return names
	}
	require.Equal(t, []string{"cpu quantile 0.75 of 10 minutes", "or with the time that work waited for CPU", "up to the next step of 5 %", "floor", "no more than the target"},
		steps(e.Lower[resources.CPU]))
	require.Equal(t, []string{"or cpu peak of this hour of the day", "or of the last hour", "or with the time that work waited for CPU", "at least 1", "floor"}, steps(e.Target[resources.CPU])[3:])
	require.Equal(t, []string{"target", "or highest of seven days", "or with the time that work waited for CPU"}, steps(e.Upper[resources.CPU]))
	for _, tc := range []struct {
		name  string
		bound resources.List
		steps []Value
	}{
		{name: "lower bound", bound: b.Lower, steps: e.Lower[resources.CPU]},
		{name: "target", bound: b.Target, steps: e.Target[resources.CPU]},
		{name: "upper bound", bound: b.Upper, steps: e.Upper[resources.CPU]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, float64(tc.bound.Value(resources.CPU)), math.Floor(tc.steps[len(tc.steps)-1].Amount))
		})
	}
}

func TestCruiseKube_Range(t *testing.T) {
	for _, tc := range []struct {
		name           string
		text           string
		cpu, memory    resources.Amount
		minCPU, maxCPU float64 // of the target
		upperCPU       float64
		bytes          float64 // target and upper bound of memory
	}{
		{
			name: "minimum of CPU and memory",
			text: "cruisekube", cpu: 0, memory: 1e6,
			minCPU: 1, maxCPU: 1, upperCPU: 1,
			bytes: 16e6,
		},
		{
			name: "maximum of 10 cores",
			text: "cruisekube", cpu: 25_000, memory: 1e9,
			minCPU: 10_000, maxCPU: 10_000, upperCPU: 25_000,
			bytes: 1e9,
		},
		{
			name: "own maximum",
			text: "cruisekube:cpu-max=64000", cpu: 25_000, memory: 1e9,
			minCPU: 25_000, maxCPU: 25_050, upperCPU: 25_000,
			bytes: 1e9,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.text)
			l.use(resources.Memory, tc.memory, time.Hour)
			l.at = start
			l.minutes(tc.cpu, time.Hour)
			b := l.bounds()
			target := float64(b.Target.Value(resources.CPU))
			require.GreaterOrEqual(t, target, tc.minCPU)
			require.LessOrEqual(t, target, tc.maxCPU)
			require.InEpsilon(t, tc.upperCPU, float64(b.Upper.Value(resources.CPU)), 0.002)
			require.InEpsilon(t, tc.bytes, float64(b.Target.Value(resources.Memory)), 0.002)
			require.InEpsilon(t, tc.bytes, float64(b.Upper.Value(resources.Memory)), 0.002)
		})
	}
}

func TestCruiseKube_MemoryBounds(t *testing.T) {
	l := live(t, "cruisekube")
	l.use(resources.Memory, 100*mib, 10*time.Hour)
	l.use(resources.Memory, 300*mib, 2*time.Hour)
	l.use(resources.Memory, 100*mib, 10*time.Hour) // 22:00
	b := l.bounds()
	mibs := func(of resources.List) float64 { return float64(of.Value(resources.Memory)) / mib }
	require.InEpsilon(t, 100, mibs(b.Target), 0.002)
	require.Equal(t, mibs(b.Target), mibs(b.Lower))
	require.InEpsilon(t, 300, mibs(b.Upper), 0.002)
	l.sketch.ObserveKill(l.at, 150*mib, 400*mib)
	b = l.bounds()
	require.Equal(t, 400.0, mibs(b.Upper), "the limit at a kill")
	require.Equal(t, 400.0, mibs(b.Target))
	require.Equal(t, 400.0, mibs(b.Lower))
	l.use(resources.Memory, 100*mib, 13*time.Hour) // 11:00, when 300 were used
	l.sketch.ObserveKill(l.at, 150*mib, 0)
	b = l.bounds()
	require.Equal(t, 400.0, mibs(b.Target), "the larger kill counts for seven days")
}

// minuteUsage is the usage of the pods of a workload by minute.
type minuteUsage struct{ use, pressed []float64 }

func (s minuteUsage) quantile(minutes int, q float64) float64 {
	last := slices.Clone(s.pressed[max(len(s.pressed)-minutes, 0):])
	slices.Sort(last)
	rank := q * float64(len(last)-1)
	low := int(rank)
	if low+1 == len(last) {
		return last[low]
	}
	return last[low] + (rank-float64(low))*(last[low+1]-last[low])
}

func TestShared_Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{
			"cruisekube", "cruisekube:base=0.9,cpu-minutes=5", "loadline:cpu=shared,memory=following,pod-min-cpu=0", "loadline:cpu=shared,base=0.9,base-minutes=30,pod-min-cpu=0",
			"loadline:cpu=shared,peak=hours,pod-min-cpu=0",
		}).Draw(t, "recipe")
		r, err := Parse(text)
		require.NoError(t, err)
		minutes, q := 10, 0.75
		switch text {
		case "cruisekube:base=0.9,cpu-minutes=5":
			minutes, q = 5, 0.9
		case "loadline:cpu=shared,base=0.9,base-minutes=30,pod-min-cpu=0":
			minutes, q = 30, 0.9
		}
		s, cpu, memory := sketch.New(r.Needs), minuteUsage{}, minuteUsage{}
		s.SetLimitRatio(sketch.NoLimitRatio)
		pods, waits := rapid.IntRange(1, 3).Draw(t, "pods"), rapid.Bool().Draw(t, "waits")
		at := start.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "begins")) * time.Minute)
		for range rapid.IntRange(1, 200).Draw(t, "minutes") {
			most, pressed, bytes := 0.0, 0.0, 0.0
			for pod := range pods {
				use := resources.Amount(rapid.SampledFrom([]int{0, 1, 7, 30, 100, 333, 1000, 5000}).Draw(t, "cpu"))
				s.ObservePod(string(rune('a'+pod)), at, resources.CPU, use, 0)
				share := 0.0
				if waits && rapid.Bool().Draw(t, "waited") {
					share = 0.3
					s.ObservePressure(at, use, share)
				}
				most, pressed = max(most, float64(use)), max(pressed, float64(use)*(1+share))
				took := resources.Amount(rapid.IntRange(20, 2000).Draw(t, "memory")) * mib
				s.ObservePod(string(rune('a'+pod)), at, resources.Memory, took, 0)
				bytes = max(bytes, float64(took))
			}
			cpu = minuteUsage{append(cpu.use, most), append(cpu.pressed, pressed)}
			memory = minuteUsage{append(memory.use, bytes), append(memory.pressed, bytes)}
			at = at.Add(time.Minute)
		}
		b := r.Recommend(Input{Sketch: s, Containers: 1}).Bounds
		for k := range resources.Kind(resources.Kinds) {
			require.LessOrEqual(t, b.Lower.Value(k), b.Target.Value(k))
			require.LessOrEqual(t, b.Target.Value(k), b.Upper.Value(k))
		}
		base, peak, highest := float64(b.Lower.Value(resources.CPU)), float64(b.Target.Value(resources.CPU)), float64(b.Upper.Value(resources.CPU))
		const noise = 1e-3 // floating-point error in this test
		usual := cpu.quantile(minutes, q) - noise
		require.GreaterOrEqual(t, base, usual)
		require.LessOrEqual(t, base, 1.052*usual+2, "a step of the grid, and what is lost by rounding")
		require.GreaterOrEqual(t, peak, cpu.quantile(10, 1))
		require.GreaterOrEqual(t, highest, slices.Max(cpu.pressed))
		if r.Needs.Kills {
			require.GreaterOrEqual(t, float64(b.Target.Value(resources.Memory)), memory.quantile(30, 1))
			require.GreaterOrEqual(t, float64(b.Lower.Value(resources.Memory)), memory.quantile(30, q)-noise)
			require.GreaterOrEqual(t, float64(b.Upper.Value(resources.Memory)), slices.Max(memory.use))
		}
	})
}

func TestUpToGrid_StepsAreFivePercent(t *testing.T) {
	grid := func(in float64) float64 { return UpToGrid().Apply(Subject{}, in) }
	for in, want := range map[float64]float64{0: 0, 0.3: 1, 1: 1, 1.01: 2, 100: 104, 104: 109, 103.03: 104, 1e9: 1_026_000_000} {
		require.InEpsilon(t, want+1, grid(in)+1, 0.03, in)
		require.GreaterOrEqual(t, grid(in), in)
	}
	amounts := map[float64]bool{}
	for in := 100.0; in < 10_000; in++ {
		amounts[grid(in)] = true
	}
	require.LessOrEqual(t, len(amounts), 96, "ln 100 / ln 1.05 = 94.4")
}

// The recordings have one line a second. Each stands for a minute here, so usage varies more than
// in real minutes.
func TestLoadlineShared_GridReducesChanges(t *testing.T) {
	for _, name := range []string{"steady", "growing", "spiky"} {
		l := live(t, "loadline:cpu=shared,pod-min-cpu=0")
		bases, percentiles, before, was := 0, 0, 0.0, 0.0
		uses := recorded(t, name)
		for _, use := range uses {
			l.minutes(resources.FromFloat(1000*use), time.Minute)
			base, peak, highest := l.cpu()
			percentile := math.Ceil(l.sketch.Hours[resources.CPU].Recent(10, 0.75))
			require.LessOrEqual(t, base, peak)
			require.LessOrEqual(t, peak, highest)
			require.GreaterOrEqual(t, base, percentile)
			if base != before {
				bases++
			}
			if percentile != was {
				percentiles++
			}
			before, was = base, percentile
		}
		t.Logf("%s: of %d minutes the base changed in %d, the percentile in %d", name, len(uses), bases, percentiles)
		require.Less(t, bases, percentiles, name)
	}
}

func recorded(t *testing.T, name string) (cores []float64) {
	file, err := os.Open("../../../testdata/traces/" + name + ".csv.gz")
	require.NoError(t, err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	require.NoError(t, err)
	lines, err := csv.NewReader(plain).ReadAll()
	require.NoError(t, err)
	require.Equal(t, "cpu_cores", lines[0][1])
	for _, line := range lines[1:] {
		use, err := strconv.ParseFloat(line[1], 64)
		require.NoError(t, err)
		cores = append(cores, use)
	}
	return cores
}
