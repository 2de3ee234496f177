package main

import (
	"fmt"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/backtest"
)

// maxStarvedRatio is the maximum ratio of our starved core-hours to the reference's on all pods.
const starvedMost = 1.2

// podResults returns the results of pods without CPU limit, and their datasets.
func (e *evidence) podResults() (results []backtest.Result, datasets []string) {
	results = where(e.all(cpuUnlimited), func(r *backtest.Result) bool { return e.origins[containerOf(r)].isPods() })
	for i := range results {
		if d := results[i].Dataset; !slices.Contains(datasets, d) {
			datasets = append(datasets, d)
		}
	}
	slices.Sort(datasets)
	return results, datasets
}

func inDataset(results []backtest.Result, dataset string) []backtest.Result {
	return where(results, func(r *backtest.Result) bool { return r.Dataset == dataset })
}

// podViolations checks fixed requirements on pods: no more unused CPU than the reference's default
// in each dataset, and at most maxStarvedRatio times its starved work in total.
func (e *evidence) podsWorse(set string) (worse []string) {
	results, datasets := e.podResults()
	for _, d := range datasets {
		one := inDataset(results, d)
		if own, theirs := backtest.CostOf(one, ours).CoreHours, backtest.CostOf(one, standard).CoreHours; own > theirs {
			worse = append(worse, fmt.Sprintf("%s, pods of %s: loadline: unused core-hours: %.6g, of vpa %.6g: must not be more", set, d, own, theirs))
		}
	}
	own, theirs := backtest.CostOf(results, ours).StarvedCoreHours, backtest.CostOf(results, standard).StarvedCoreHours
	if own > starvedMost*theirs {
		worse = append(worse, fmt.Sprintf("%s, all pods: loadline: starved core-hours: %.6g, of vpa %.6g: must not be more than %g times that", set, own, theirs, starvedMost))
	}
	return worse
}

func (e *evidence) pods() string {
	results, datasets := e.podResults()
	var b strings.Builder
	heads, second := "| recipe |", "| |"
	for _, d := range append(slices.Clone(datasets), "all") {
		name, _, _ := strings.Cut(d, ".")
		heads, second = heads+" "+name+" | |", second+" unused | starved |"
	}
	fmt.Fprintf(&b, "%s\n|---|%s\n%s\n", heads, strings.Repeat("---|", 2*(len(datasets)+1)), second)
	for _, name := range newFleet(results).presets(planes[cpuUnlimited].kind) {
		fmt.Fprintf(&b, "| `%s` |", short(name))
		for _, d := range datasets {
			podCells(&b, inDataset(results, d), name)
		}
		podCells(&b, results, name)
		fmt.Fprintln(&b)
	}
	return b.String()
}

func podCells(b *strings.Builder, results []backtest.Result, name string) {
	cost := backtest.CostOf(results, name)
	fmt.Fprintf(b, " %s | %s |", number(cost.CoreHours), number(cost.StarvedCoreHours))
}
