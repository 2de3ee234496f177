package main

import (
	"fmt"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/backtest"
)

// maxStarvedRatio is the maximum ratio of our starved core-hours to the reference's on all pods.
const maxStarvedRatio = 1.2

// podResults returns the results of pods without CPU limit, and their datasets.
func (e *evidence) podResults() (results []backtest.Result, datasets []string) {
	results = filterResults(e.all(cpuUnlimited), func(r *backtest.Result) bool { return e.origins[containerOf(r)].isPods() })
	for i := range results {
		if d := results[i].Dataset; !slices.Contains(datasets, d) {
			datasets = append(datasets, d)
		}
	}
	slices.Sort(datasets)
	return results, datasets
}

func inDataset(results []backtest.Result, dataset string) []backtest.Result {
	return filterResults(results, func(r *backtest.Result) bool { return r.Dataset == dataset })
}

// podViolations checks fixed requirements on pods: no more unused CPU than the reference's default
// in each dataset, and at most maxStarvedRatio times its starved work in total.
func (e *evidence) podViolations(set string) (worse []string) {
	results, datasets := e.podResults()
	for _, d := range datasets {
		datasetResults := inDataset(results, d)
		if own, theirs := backtest.CostOf(datasetResults, loadlineDefault).CoreHours, backtest.CostOf(datasetResults, upstreamDefault).CoreHours; own > theirs {
			worse = append(worse, fmt.Sprintf("%s, pods of %s: loadline: unused core-hours: %.6g, of vpa %.6g: must not be more", set, d, own, theirs))
		}
	}
	own, theirs := backtest.CostOf(results, loadlineDefault).StarvedCoreHours, backtest.CostOf(results, upstreamDefault).StarvedCoreHours
	if own > maxStarvedRatio*theirs {
		worse = append(worse, fmt.Sprintf("%s, all pods: loadline: starved core-hours: %.6g, of vpa %.6g: must not be more than %g times that", set, own, theirs, maxStarvedRatio))
	}
	return worse
}

func (e *evidence) podTable() string {
	results, datasets := e.podResults()
	var b strings.Builder
	heads, second := "| recipe |", "| |"
	for _, d := range append(slices.Clone(datasets), "all") {
		name, _, _ := strings.Cut(d, ".")
		heads, second = heads+" "+name+" | |", second+" unused | starved |"
	}
	fmt.Fprintf(&b, "%s\n|---|%s\n%s\n", heads, strings.Repeat("---|", 2*(len(datasets)+1)), second)
	for _, name := range newFleet(results).presets(experiments[cpuUnlimited].kind) {
		fmt.Fprintf(&b, "| `%s` |", shortName(name))
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
