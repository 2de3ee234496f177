package backtest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

func result(candidate string, k resources.Kind, class replay.Class, t Tally) Result {
	return Result{Candidate: candidate, Kind: k, Class: class, Scored: t}
}

func value(t *testing.T, s Summary, name string) float64 {
	t.Helper()
	f, ok := s.Figure(name)
	require.True(t, ok, name)
	require.LessOrEqual(t, f.Low, f.Value, name)
	require.GreaterOrEqual(t, f.High, f.Value, name)
	return f.Value
}

func TestSummarise_SeparatesFleetAndContainerMeans(t *testing.T) {
	results := []Result{
		result("a", resources.CPU, replay.Steady, Tally{Days: 2, Dates: 2, Seconds: 10, Reserved: 900, Over: 90, Used: 810, Changes: 4}),
		result("a", resources.CPU, replay.Bursty, Tally{Days: 2, Dates: 2, Seconds: 10, Reserved: 100, Over: 90, Used: 10}),
		result("a", resources.Memory, replay.Bursty, Tally{Days: 4, Dates: 4, Reserved: 1, Kills: 5, KillDays: 1, SevereDays: 1}),
	}
	all := Summarise(results, false)
	require.Len(t, all, 5, "the fleet and two classes of CPU, the fleet and one class of memory")
	require.InDelta(t, 0.18, value(t, all[0], "slack"), 1e-12)
	require.InDelta(t, 0.5, value(t, all[0], "slack_mean"), 1e-12)
	require.InDelta(t, 1, value(t, all[0], "changes_per_day"), 1e-12)
	require.InDelta(t, 0.5, value(t, all[0], "no_change"), 1e-12)
	require.Equal(t, replay.Steady, all[1].Class)
	require.InDelta(t, 0.1, value(t, all[1], "slack"), 1e-12)
	memory := all[3]
	require.InDelta(t, 0.25, value(t, memory, "oom_day_share"), 1e-12)
	require.InDelta(t, 1.25, value(t, memory, "oom_per_day"), 1e-12)
	require.InDelta(t, 0.25, value(t, memory, "severe_day_share"), 1e-12)
	require.InDelta(t, 0.25, memory.Finest, 1e-12)
	_, ok := memory.Figure("starved_work")
	require.False(t, ok)
}

// The mean of 200 containers with values 0 or 1 has the confidence interval of a coin flip.
func TestIntervals_HaveExpectedWidth(t *testing.T) {
	var results []Result
	for i := range 200 {
		results = append(results, result("a", resources.CPU, replay.Other, Tally{Dates: 1, Reserved: 1, Over: float64(i % 2)}))
	}
	slack, ok := (&Summarise(results, false)[0]).Figure("slack_mean")
	require.True(t, ok)
	require.InDelta(t, 0.5, slack.Value, 1e-12)
	half := 1.96 * 0.5 / math.Sqrt(200)
	require.InDelta(t, 0.5-half, slack.Low, half/4)
	require.InDelta(t, 0.5+half, slack.High, half/4)
	require.Equal(t, Summarise(results, false), Summarise(results, false))
}

func TestWait_HandlesCensoredOutcomes(t *testing.T) {
	o := func(seconds float64, reached bool) Outcome {
		return Outcome{Seconds: seconds, Reached: reached}
	}
	require.Equal(t, Wait{Median: 20, Cases: 3}, wait([]Outcome{o(30, true), o(10, true), o(20, true)}))
	// Kaplan-Meier: 3/4 remain after 10. The case at 15 is censored. After 20, half of the rest
	// remain: 3/8.
	require.Equal(t, Wait{Median: 20, Censored: 0.5, Cases: 4}, wait([]Outcome{o(10, true), o(15, false), o(20, true), o(99, false)}))
	never := wait([]Outcome{o(10, false), o(20, false)})
	require.True(t, math.IsInf(never.Median, 1))
	require.InDelta(t, 1, never.Censored, 1e-12)
	require.Zero(t, wait(nil).Cases)
}

func TestFront_MarksDominatedCandidates(t *testing.T) {
	at := func(name string, over, starved float64, changes int) Result {
		return result(name, resources.CPU, replay.Other, Tally{Days: 1, Dates: 1, Reserved: 1, Used: 1, Over: over, StarvedWork: starved, Changes: changes})
	}
	all := Summarise([]Result{at("lean", 0.2, 0.3, 5), at("safe", 0.6, 0.1, 5), at("bad", 0.7, 0.1, 5), at("calm", 0.7, 0.4, 1)}, false)
	points := Front(all, resources.CPU)
	var dominated []string
	for _, p := range points {
		dominated = append(dominated, p.Candidate+"<"+p.Dominated)
	}
	require.Equal(t, []string{"lean<", "safe<", "bad<safe", "calm<"}, dominated)
	require.Empty(t, Front(all, resources.Memory))
}

func TestCostOf_SumsOneCandidate(t *testing.T) {
	results := []Result{
		result("a", resources.CPU, replay.Other, Tally{Over: 3600 * 1000 * 10, StarvedWork: 3600 * 1000 * 2, Evictions: 3}),
		result("a", resources.Memory, replay.Other, Tally{Over: 3600 * (8 << 30), Kills: 4}),
		result("b", resources.CPU, replay.Other, Tally{Over: 1e15}),
	}
	require.Equal(t, Cost{Candidate: "a", CoreHours: 10, GiBHours: 8, Kills: 4, Evictions: 3, StarvedCoreHours: 2, Total: 10 + 1 + 80 + 3 + 8}, CostOf(results, "a"))
}

// With the other candidate, one container needs half of the request and one needs a quarter.
func TestCompare_PairsContainers(t *testing.T) {
	one := func(candidate, container string, reserved, over float64) Result {
		r := result(candidate, resources.CPU, replay.Other, Tally{Seconds: 1, Dates: 1, Days: 1, Reserved: reserved, Over: over, Used: reserved - over})
		r.Container = container
		return r
	}
	results := []Result{one("a", "x", 8, 6), one("a", "y", 100, 90), one("a", "z", 1, 1), one("b", "y", 25, 15), one("b", "x", 4, 2)}
	p := Compare(results, "a", "b", resources.CPU)
	require.Equal(t, 2, p.Containers, "one has no twin")
	require.InDelta(t, math.Sqrt(1.0/8), p.Reserved.Value, 1e-12)
	require.InDelta(t, 0.25, p.Reserved.Low, 1e-12)
	require.InDelta(t, 0.5, p.Reserved.High, 1e-12)
	slack, ok := p.Difference("slack_mean")
	require.True(t, ok)
	require.InDelta(t, (0.5+0.6)/2-(0.75+0.9)/2, slack.Value, 1e-12)
	_, ok = p.Difference("oom_day_share")
	require.False(t, ok)
	same := Compare(results, "a", "a", resources.CPU)
	require.Equal(t, Figure{"reserved", 1, 1, 1}, same.Reserved)
	require.Zero(t, Compare(results, "a", "c", resources.CPU).Containers)
}

func TestQuantileOf_MatchesQuantileOfDraws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "containers")
		draw := func(name string) []float64 { return rapid.SliceOfN(rapid.Float64Range(0, 3), n, n).Draw(t, name) }
		parts, wholes := draw("parts"), draw("wholes")
		wholes[0] = 0
		quantile := quantileOf(0.9, parts, wholes)
		for range 3 {
			of := rapid.SliceOfN(rapid.IntRange(0, n-1), n, n).Draw(t, "of")
			var ratios []float64
			for _, i := range of {
				if wholes[i] != 0 {
					ratios = append(ratios, parts[i]/wholes[i])
				}
			}
			require.Equal(t, Quantile(ratios, 0.9), quantile(of))
		}
	})
}

func TestIntervals_SkipDrawsWithoutValue(t *testing.T) {
	interval := func(value func([]int) float64) Figure { return Intervals(3, []Formula{{"x", value}})[0] }
	n := 0
	some := func(every int) func([]int) float64 {
		return func([]int) float64 {
			if n++; n%every == 0 {
				return math.NaN()
			}
			return 5
		}
	}
	f := interval(some(100))
	require.Equal(t, []float64{5, 5}, []float64{f.Low, f.High})
	few, m := 0, 0 // 10 of 1,000 draws have no value, and 15 fewer are cut at each end
	f = interval(func([]int) float64 {
		if few++; few > 1 && few <= 11 {
			return math.NaN()
		}
		m++
		return float64(m)
	})
	require.Equal(t, []float64{17, 976}, []float64{f.Low, f.High})
	f = interval(some(10))
	require.True(t, math.IsNaN(f.Low) && math.IsNaN(f.High))
}

func TestStability_LimitOnlyChangeHasNoDirection(t *testing.T) {
	tally := Tally{}
	s := stability{tally: &tally}
	for i, to := range []resources.Amount{80, 80, 70} {
		from := []resources.Amount{100, 80, 80}[i]
		s.change(replay.Change{At: int64(i+1) * 3600e9, Kind: resources.Memory, From: from, To: to})
	}
	require.EqualValues(t, 3, tally.Changes)
	require.Zero(t, tally.Reversals)
	require.Zero(t, tally.Pointless)
	require.Len(t, tally.Between, 2)
}
