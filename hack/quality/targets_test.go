package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// fared returns results of ten containers of a class that a candidate gave so much,
// and that went without so much of their work.
func fared(candidate string, class replay.Class, request, starved float64) []backtest.Result {
	var all []backtest.Result
	for c := range 10 {
		r := backtest.Result{Candidate: candidate, Workload: fmt.Sprint(class, c), Class: class, Kind: resources.CPU}
		r.Scored = backtest.Tally{Days: 1, Seconds: 1, Dates: 1, Reserved: request, Over: request - 10, Used: 10, StarvedWork: 10 * starved, Changes: 1}
		r.Cold = r.Scored
		all = append(all, r)
	}
	return all
}

func TestTargetsSayWhatIsMissed(t *testing.T) {
	var e evidence
	for _, one := range []struct {
		candidate string
		request   float64
		starved   float64
	}{
		{standard, 100, 0.10}, {withFloors("vpa:target-cpu=1,margin=0"), 400, 0.01}, {withFloors("vpa:target-cpu=0.5,margin=0"), 60, 0.20},
		{ours, 90, 0.04}, {withFloors("loadline:cpu=calm-lean"), 60, 0.06}, {withFloors("loadline:cpu=calm-safe"), 120, 0.03}, {tracking, 95, 0.09},
	} {
		e.results[cpuUnlimited][report] = append(e.results[cpuUnlimited][report], fared(one.candidate, replay.Batch, one.request, one.starved)...)
		steady := one.starved
		if one.candidate == ours {
			steady = 0.11
		}
		e.results[cpuUnlimited][report] = append(e.results[cpuUnlimited][report], fared(one.candidate, replay.Steady, one.request, steady)...)
	}
	for _, class := range replay.Classes() { // settings of the reference that are swept and do not matter here
		for _, name := range sweep(resources.CPU) {
			if name != withFloors("vpa:target-cpu=1,margin=0") && name != withFloors("vpa:target-cpu=0.5,margin=0") {
				e.results[cpuUnlimited][report] = append(e.results[cpuUnlimited][report], fared(name, class, 1000, 0.5)...)
			}
		}
	}
	out := e.targets()
	require.Contains(t, out, "| CPU tracking, 1 [1, 1] changes a day: slack at equal starved work, per container | 24 % less | 18 % | ")
	require.Contains(t, out, "| batch | 10 | 10 % [10, 10] | 4 % [4, 4] |  |")
	require.Contains(t, out, "| steady | 10 | 10 % [10, 10] | 11 % [11, 11] | **missed** |")
	require.Contains(t, out, "| CPU with limit = request: work served (the reference: 100 %) | 99 % | 97 % | nothing to compare with | **missed** |")
	require.Contains(t, out, "CPU of class steady, ours and the front of the reference:")
	require.Contains(t, out, "| `loadline` | 88.9 % | 11 % |")
	require.NotContains(t, out, "CPU of class batch")
}

func TestShortRecordingsAreApart(t *testing.T) {
	results := []backtest.Result{{Workload: "a"}, {Workload: "b", Short: true}}
	require.Equal(t, "a", lasting(results, true)[0].Workload)
	require.Equal(t, "b", lasting(results, false)[0].Workload)
	require.Equal(t, "5 % [1, 10]", percent(backtest.Figure{Value: 0.05, Low: 0.01, High: 0.1}))
}
