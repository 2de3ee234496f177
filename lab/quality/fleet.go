package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// String returns the name of the container, with the name of its workload unless it has that
// prefix.
func (c container) String() string {
	if strings.HasPrefix(c.name, c.workload) {
		return c.name
	}
	return c.workload + "/" + c.name
}

// fleet is a set of containers with the tallies of each candidate.
type fleet struct {
	containers []container
	tallies    map[string][]*backtest.Tally // scored phases by candidate, in the order of the containers
}

// newFleet returns the containers of results of one resource, in their order, without containers
// that lack a candidate.
func newFleet(results []backtest.Result) *fleet {
	f := &fleet{tallies: map[string][]*backtest.Tally{}}
	by := map[container]map[string]*backtest.Tally{}
	for i := range results {
		r := &results[i]
		at := containerOf(r)
		if by[at] == nil {
			by[at] = map[string]*backtest.Tally{}
			f.containers = append(f.containers, at)
		}
		by[at][r.Candidate] = &r.Scored
		f.tallies[r.Candidate] = nil
	}
	f.containers = slices.DeleteFunc(f.containers, func(c container) bool { return len(by[c]) < len(f.tallies) })
	for name := range f.tallies {
		for _, c := range f.containers {
			f.tallies[name] = append(f.tallies[name], by[c][name])
		}
	}
	return f
}

func (f *fleet) presets(k resources.Kind) []string {
	return slices.DeleteFunc(presetRecipes(k), func(name string) bool { return f.tallies[name] == nil })
}

func allIndexes(n int) []int {
	of := make([]int, n)
	for i := range of {
		of[i] = i
	}
	return of
}

// Figures in addition to the summary of the backtester.
const (
	reserved      = "reserved"       // geometric mean over containers of their mean request
	reservedFleet = "reserved_fleet" // mean request of all together
	oomDaysMean   = "oom_days_mean"  // mean over containers of the share of their days with a kill
)

// series is a figure of some containers: the ratio of two sums, or its exponential.
type series struct {
	parts, wholes []float64
	geometric     bool
}

// value returns the figure over the containers with the given indexes.
func (s series) value(of []int) float64 {
	v := backtest.Ratio(s.parts, s.wholes, of)
	if s.geometric {
		return math.Exp(v)
	}
	return v
}

func measure(name string, k resources.Kind, of []*backtest.Tally) series {
	s := series{geometric: name == reserved}
	for _, t := range of {
		part, whole := figureParts(name, k, t)
		s.parts, s.wholes = append(s.parts, part), append(s.wholes, whole)
	}
	return s
}

// figureParts returns the numerator and the denominator of a figure.
func figureParts(name string, k resources.Kind, t *backtest.Tally) (part, whole float64) {
	switch {
	case name == reservedFleet:
		return t.Reserved, t.Seconds
	case name == reserved && t.MeanRequest() <= 0:
		return 0, 0
	case name == reserved:
		return math.Log(t.MeanRequest()), 1
	case name == oomDaysMean && t.Dates == 0:
		return 0, 0
	case name == oomDaysMean:
		return oomDayShare(k, t), 1
	}
	at := slices.IndexFunc(backtest.Measures, func(m backtest.Measure) bool { return m.Name == name && m.Has(k) })
	return backtest.Measures[at].Of(t)
}

// column is a figure in tables.
type column struct {
	head    string
	measure string
	percent bool
	times   bool // as a multiple of the reference's default
}

// The first columns of each resource are its cost and its risk in both views. The last column is
// the number of changes.
const (
	costMean = iota
	costFleet
	riskMean
	riskFleet
)

var columns = [resources.Kinds][]column{
	resources.CPU: {
		{head: "slack, mean %", measure: "slack_mean", percent: true},
		{head: "slack, fleet %", measure: "slack", percent: true},
		{head: "starved, mean %", measure: "starved_work_mean", percent: true},
		{head: "starved, fleet %", measure: "starved_work", percent: true},
		{head: "starved time, mean %", measure: "starved_time_mean", percent: true},
		{head: "changes a day", measure: "changes_per_day"},
	},
	resources.Memory: {
		{head: "reserved x, mean", measure: reserved, times: true},
		{head: "reserved x, fleet", measure: reservedFleet, times: true},
		{head: "OOM days, mean %", measure: oomDaysMean, percent: true},
		{head: "OOM days, fleet %", measure: "oom_day_share", percent: true},
		{head: "kills a day", measure: "oom_per_day"},
		{head: "above request %", measure: "above_request", percent: true},
		{head: "changes a day", measure: "changes_per_day"},
	},
}

func changesColumn(k resources.Kind) int { return len(columns[k]) - 1 }

func (f *fleet) formula(c column, candidate string, k resources.Kind) backtest.Formula {
	own := measure(c.measure, k, f.tallies[candidate])
	if !c.times {
		return backtest.Formula{Name: c.head, Value: own.value}
	}
	base := measure(c.measure, k, f.tallies[upstreamDefault])
	return backtest.Formula{Name: c.head, Value: func(of []int) float64 { return own.value(of) / base.value(of) }}
}

// relativeToDefault returns the difference of a column from the reference's default on the same
// draws of containers, or the multiple of it.
func (f *fleet) relativeToDefault(c column, candidate string, k resources.Kind) backtest.Formula {
	if c.times {
		return f.formula(c, candidate, k)
	}
	own, base := measure(c.measure, k, f.tallies[candidate]), measure(c.measure, k, f.tallies[upstreamDefault])
	return backtest.Formula{Name: c.head, Value: func(of []int) float64 { return own.value(of) - base.value(of) }}
}

func (f *fleet) columnValue(c column, candidate string, k resources.Kind) float64 {
	return f.formula(c, candidate, k).Value(allIndexes(len(f.containers)))
}

func (f *fleet) intervals(all []backtest.Formula) []backtest.Figure {
	return backtest.Intervals(len(f.containers), all)
}

func (c column) value(v float64) string {
	if c.percent {
		v *= 100
	}
	return number(v)
}

// cell formats a figure with its interval, or without it if all draws agree.
func (c column) cell(f backtest.Figure) string {
	switch {
	case f.Low == f.Value && f.High == f.Value:
		return c.value(f.Value)
	case math.IsNaN(f.Low) || math.IsNaN(f.High):
		return c.value(f.Value) + " [not known]"
	}
	return fmt.Sprintf("%s [%s, %s]", c.value(f.Value), c.value(f.Low), c.value(f.High))
}

// number formats three digits, or all before the decimal point.
func number(v float64) string {
	if math.Abs(v) >= 999.5 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
