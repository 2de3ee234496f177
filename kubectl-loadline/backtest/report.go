package backtest

import (
	"slices"
	"sync"
	"time"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// Setting is one thing that the result depends on.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Report is the whole result.
type Report struct {
	Settings []Setting
	Results  []backtest.Result
	Cold     []backtest.Summary // of the warm-up
	Scored   []backtest.Summary
	Fronts   [resources.Kinds][]backtest.Point
	Pairs    []backtest.Pair // every other candidate against the base
	Costs    []backtest.Cost
	Nodes    *Judgement // nil = nothing was placed on nodes
}

// NewReport makes a report of results, in which the others are compared with one
// candidate, the base.
func NewReport(results []backtest.Result, settings []Setting, base string) *Report {
	d := &Report{Settings: settings, Results: results}
	var apart sync.WaitGroup // all read the results, and each writes its own
	apart.Go(func() { d.Cold = backtest.Summarise(results, true) })
	apart.Go(func() { d.Scored = backtest.Summarise(results, false) })
	apart.Go(func() { d.Pairs = pairs(results, base) })
	apart.Wait()
	for k := range resources.Kind(resources.Kinds) {
		d.Fronts[k] = backtest.Front(d.Scored, k)
	}
	for _, name := range candidates(results) {
		d.Costs = append(d.Costs, backtest.CostOf(results, name))
	}
	return d
}

// pairs compares every other candidate with the base.
func pairs(results []backtest.Result, base string) []backtest.Pair {
	var all []backtest.Pair
	for k := range resources.Kind(resources.Kinds) {
		for _, name := range candidates(results) {
			if name == base {
				continue
			}
			if p := backtest.Compare(results, base, name, k); p.Containers > 0 {
				all = append(all, p)
			}
		}
	}
	return all
}

// candidates lists their names in the order in which the results have them.
func candidates(results []backtest.Result) []string {
	var names []string
	for i := range results {
		if name := results[i].Candidate; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// scale is what an amount is divided by where it is written: millicores become cores.
func scale(k resources.Kind) float64 {
	if k == resources.CPU {
		return 1000
	}
	return 1
}

// hours returns core-hours or GiB-hours.
func hours(r *backtest.Result, sum float64) float64 { return sum / 3600 / backtest.Unit(r.Kind) }

// starvedHours returns the core-hours of work above the request. There are none of memory.
func starvedHours(r *backtest.Result) float64 {
	if r.Kind == resources.Memory {
		return 0
	}
	return hours(r, r.Scored.StarvedWork)
}

// duration rounds seconds to what people read.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d > 48*time.Hour {
		return d.Round(time.Hour).String()
	}
	return d.Round(time.Minute).String()
}
