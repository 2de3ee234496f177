package backtest

import (
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

// Document is the whole result.
type Document struct {
	Settings []Setting
	Rows     []Row
	Cold     []backtest.Summary // of the warm-up
	Scored   []backtest.Summary
	Fronts   [resources.Kinds][]backtest.Point
	Pairs    []backtest.Pair // every other candidate against the base
	Costs    []backtest.Cost
}

// NewDocument makes a document of scores, in which the others are compared with one
// candidate, the base.
func NewDocument(results []backtest.Result, settings []Setting, base string) *Document {
	d := NewRows(results)
	d.Settings = settings
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

// NewRows makes a document that has rows only, which are quickly made.
func NewRows(results []backtest.Result) *Document {
	d := &Document{}
	for i := range results {
		d.Rows = append(d.Rows, row(&results[i]))
	}
	return d
}

// candidates lists their names in the order in which the results have them.
func candidates(results []backtest.Result) []string {
	var names []string
	seen := map[string]bool{}
	for i := range results {
		if name := results[i].Candidate; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// Row is one container under one candidate, in the scored phase. Amounts are
// cores or bytes, hours those of cores or GiB.
type Row struct {
	Dataset, Workload, Container, Class string
	StepSeconds, Days                   float64
	Candidate, Resource, LimitPolicy    string
	First                               float64
	MeanRequest, MeanUsage              float64
	SlackAbsolute, Slack, PeakSlack     float64
	OverHours                           float64
	Kills, KillDays                     int
	AboveRequest                        float64 // memory: share of time
	Throttled, Unserved                 float64
	Starved, StarvedHours               float64 // CPU: share of time, and hours
	Changes, Evictions                  int
	Churn, Reversals                    float64
	ConvergeSeconds                     float64
	Converged                           bool
	RegretHours                         float64
	Short, Clipped                      bool
}

// scale is what an amount is divided by in a row.
func scale(k resources.Kind) float64 {
	if k == resources.CPU {
		return 1000
	}
	return 1
}

func row(r *backtest.Result) Row {
	t, unit := &r.Scored, scale(r.Kind)
	hours := func(sum float64) float64 { return sum / 3600 / backtest.Unit(r.Kind) }
	row := Row{
		Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Class: string(r.Class),
		StepSeconds: r.Step.Seconds(), Days: t.Days, Candidate: r.Candidate, Resource: r.Kind.String(), LimitPolicy: r.Limit,
		First: float64(r.First) / unit, MeanRequest: t.MeanRequest() / unit, MeanUsage: t.MeanUse() / unit,
		SlackAbsolute: t.SlackAbsolute() / unit, Slack: t.Slack(), PeakSlack: t.PeakSlack(), OverHours: hours(t.Over),
		Kills: t.Kills, KillDays: t.KillDays, Throttled: t.ThrottledShare(), Unserved: t.UnservedShare(),
		Changes: t.Changes, Evictions: t.Evictions, Churn: t.ChurnRate(), Reversals: t.ReversalShare(),
		ConvergeSeconds: r.Near.Seconds, Converged: r.Near.Reached, RegretHours: hours(t.Regret()), Short: r.Short, Clipped: r.Clipped,
	}
	if r.Kind == resources.Memory {
		row.AboveRequest = t.StarvedShare()
	} else {
		row.Starved, row.StarvedHours = t.StarvedShare(), hours(t.StarvedWork)
	}
	return row
}

// duration rounds seconds to what people read.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d > 48*time.Hour {
		return d.Round(time.Hour).String()
	}
	return d.Round(time.Minute).String()
}
