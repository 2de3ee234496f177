package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// newClassResults returns results of ten containers of a class with the given request and share of
// starved work.
func newClassResults(candidate string, class replay.Class, request, starved float64) []backtest.Result {
	var all []backtest.Result
	for c := range 10 {
		r := backtest.Result{Candidate: candidate, Workload: fmt.Sprint(class, c), Class: class, Kind: resources.CPU}
		r.Scored = backtest.Tally{Days: 1, Seconds: 1, Dates: 1, Reserved: request, Over: request - 10, Used: 10, StarvedWork: 10 * starved, Changes: 1}
		r.Cold = r.Scored
		all = append(all, r)
	}
	return all
}

func TestTargets_ReportMissedTargets(t *testing.T) {
	var e evidence
	for _, one := range []struct {
		candidate string
		request   float64
		starved   float64
	}{
		{candidate: upstreamDefault, request: 100, starved: 0.10},
		{candidate: withFloors("vpa:target-cpu=1,margin=0"), request: 400, starved: 0.01},
		{candidate: withFloors("vpa:target-cpu=0.5,margin=0"), request: 60, starved: 0.20},
		{candidate: loadlineDefault, request: 90, starved: 0.04},
		{candidate: withFloors("loadline:cpu=calm-lean"), request: 60, starved: 0.06},
		{candidate: withFloors("loadline:cpu=calm-safe"), request: 120, starved: 0.03},
		{candidate: tracking, request: 95, starved: 0.09},
	} {
		e.results[cpuUnlimited][report] = append(e.results[cpuUnlimited][report], newClassResults(one.candidate, replay.Batch, one.request, one.starved)...)
		steady := one.starved
		if one.candidate == loadlineDefault {
			steady = 0.11
		}
		e.results[cpuUnlimited][report] = append(e.results[cpuUnlimited][report], newClassResults(one.candidate, replay.Steady, one.request, steady)...)
	}
	for _, class := range replay.Classes() { // swept settings of the reference recipe that do not matter here
		for _, name := range upstreamSweep(resources.CPU) {
			if name != withFloors("vpa:target-cpu=1,margin=0") && name != withFloors("vpa:target-cpu=0.5,margin=0") {
				e.results[cpuUnlimited][report] = append(e.results[cpuUnlimited][report], newClassResults(name, class, 1000, 0.5)...)
			}
		}
	}
	out := e.targets()
	require.Contains(t, out, "| CPU tracking, 1 [1, 1] changes a day: slack at equal starved work, per container | 24 % less | 18 % | ")
	require.Contains(t, out, "| batch | 10 | 10 % [10, 10] | 4 % [4, 4] |  |")
	require.Contains(t, out, "| steady | 10 | 10 % [10, 10] | 11 % [11, 11] | **missed** |")
	require.Contains(t, out, "| CPU with limit = request: work served (the reference: 100 %) | 99 % | 97 % | nothing to compare with | **missed** |")
	require.Contains(t, out, "CPU of class steady:")
	require.Contains(t, out, "| `loadline:cpu=calm-lean` | 83.3 | 6 |\n| `vpa:target-cpu=0.5,margin=0` | 83.3 | 20 |\n| `loadline` | 88.9 | 11 |\n| `loadline:cpu=tracking` | 89.5 | 9 |\n| `vpa` | 90 | 10 |\n| `loadline:cpu=calm-safe` | 91.7 | 3 |\n")
	require.NotContains(t, out, "CPU of class batch")
}

// If loadline costs more than the reference recipe at equal risk, the page lists the alternatives.
// If it costs less, the list is empty.
func TestFrontiers_ListAlternativesWhereLoadlineCostsMore(t *testing.T) {
	frontiers := func(request float64) string {
		e := &evidence{origins: map[container]origin{}}
		for c := range 10 {
			by := map[string][2]float64{
				upstreamDefault: {2, 0.1}, withFloors("vpa:target-cpu=0.5,margin=0"): {0.9, 0.3}, withFloors("vpa:target-cpu=0.9,margin=0"): {1.5, 0.05},
				withFloors("vpa:target-cpu=0.95,margin=0"): {1.9, 0.2}, withFloors("vpa:target-cpu=1,margin=0"): {9, 0}, loadlineDefault: {request, 0.05},
			}
			for _, recipe := range append([]string{upstreamDefault, loadlineDefault}, upstreamSweep(resources.CPU)...) {
				is, known := by[recipe]
				if !known {
					is = [2]float64{99, 0.5}
				}
				r := newResult(recipe, fmt.Sprint(c), is[0], 1, is[1], 1)
				e.origins[containerOf(&r)] = machines
				e.results[cpuUnlimited][report] = append(e.results[cpuUnlimited][report], r)
			}
		}
		return e.frontiers()
	}
	costly := frontiers(2.5)
	require.Contains(t, costly, "CPU, no limit, machines, by container: 69.1 % more.\n\n| recipe | slack, mean % | starved, mean % |\n")
	require.Contains(t, costly, "| `vpa:target-cpu=0.5,margin=0` | 22.2 | 30 |\n| `vpa:target-cpu=0.9,margin=0` | 36.7 | 5 |\n| `vpa` | 55 | 10 |\n| `loadline` | 62 | 5 |\n")
	require.NotContains(t, costly, "target-cpu=0.95,margin=0", "another one costs less and has less risk")
	require.NotContains(t, costly, "target-cpu=1,margin=0", "it costs more than any of ours")
	require.Empty(t, frontiers(1.2))
}

func TestLasting_SeparatesShortRecordings(t *testing.T) {
	results := []backtest.Result{{Workload: "a"}, {Workload: "b", Short: true}}
	require.Equal(t, "a", byLength(results, true)[0].Workload)
	require.Equal(t, "b", byLength(results, false)[0].Workload)
	require.Equal(t, "5 % [1, 10]", percent(backtest.Figure{Value: 0.05, Low: 0.01, High: 0.1}))
}
