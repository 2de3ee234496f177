package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// String returns the name of the container, with that of its workload where the name does
// not tell.
func (c container) String() string {
	if strings.HasPrefix(c.name, c.workload) {
		return c.name
	}
	return c.workload + "/" + c.name
}

// fleet is some containers, and what each candidate led to for them.
type fleet struct {
	of      []container
	tallies map[string][]*backtest.Tally // scored phases by candidate, in the order of the containers
}

// newFleet returns the containers of results of one resource, in their order, without those
// that a candidate lacks.
func newFleet(results []backtest.Result) *fleet {
	f := &fleet{tallies: map[string][]*backtest.Tally{}}
	by := map[container]map[string]*backtest.Tally{}
	for i := range results {
		r := &results[i]
		at := containerOf(r)
		if by[at] == nil {
			by[at] = map[string]*backtest.Tally{}
			f.of = append(f.of, at)
		}
		by[at][r.Candidate] = &r.Scored
		f.tallies[r.Candidate] = nil
	}
	f.of = slices.DeleteFunc(f.of, func(c container) bool { return len(by[c]) < len(f.tallies) })
	for name := range f.tallies {
		for _, c := range f.of {
			f.tallies[name] = append(f.tallies[name], by[c][name])
		}
	}
	return f
}

// presets returns the presets of a kind that the containers were replayed under.
func (f *fleet) presets(k resources.Kind) []string {
	return slices.DeleteFunc(compared(k), func(name string) bool { return f.tallies[name] == nil })
}

// everyone returns the numbers from 0 to n-1.
func everyone(n int) []int {
	of := make([]int, n)
	for i := range of {
		of[i] = i
	}
	return of
}

// Figures that no summary of the backtester has.
const (
	reserved      = "reserved"       // geometric mean over containers of their mean request
	reservedFleet = "reserved_fleet" // mean request of all together
	oomDaysMean   = "oom_days_mean"  // mean over containers of the share of their days with a kill
)

// series is a figure of some containers, as the ratio of two sums, or what e is to be
// raised to by that.
type series struct {
	parts, wholes []float64
	geometric     bool
}

// value returns the figure over the containers with the given numbers.
func (s series) value(of []int) float64 {
	v := backtest.Ratio(s.parts, s.wholes, of)
	if s.geometric {
		return math.Exp(v)
	}
	return v
}

// measure returns a figure of some containers by its name.
func measure(name string, k resources.Kind, of []*backtest.Tally) series {
	s := series{geometric: name == reserved}
	for _, t := range of {
		part, whole := partOf(name, k, t)
		s.parts, s.wholes = append(s.parts, part), append(s.wholes, whole)
	}
	return s
}

// partOf returns the parts of a figure by its name.
func partOf(name string, k resources.Kind, t *backtest.Tally) (part, whole float64) {
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

// column is a figure as tables have it.
type column struct {
	head    string
	measure string
	percent bool
	times   bool // as a multiple of that under the reference's default
}

// The first columns of each resource are its cost and its risk, in both views; the last
// one is the changes.
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

// changes is the column of changes.
func changes(k resources.Kind) int { return len(columns[k]) - 1 }

// formula returns the column under a candidate.
func (f *fleet) formula(c column, candidate string, k resources.Kind) backtest.Formula {
	own := measure(c.measure, k, f.tallies[candidate])
	if !c.times {
		return backtest.Formula{Name: c.head, Value: own.value}
	}
	base := measure(c.measure, k, f.tallies[standard])
	return backtest.Formula{Name: c.head, Value: func(of []int) float64 { return own.value(of) / base.value(of) }}
}

// beyond returns how the column under a candidate differs from that under the reference's
// default, on the same draws of containers: a multiple, or a difference.
func (f *fleet) beyond(c column, candidate string, k resources.Kind) backtest.Formula {
	if c.times {
		return f.formula(c, candidate, k)
	}
	own, base := measure(c.measure, k, f.tallies[candidate]), measure(c.measure, k, f.tallies[standard])
	return backtest.Formula{Name: c.head, Value: func(of []int) float64 { return own.value(of) - base.value(of) }}
}

// at returns a column of all containers under a candidate.
func (f *fleet) at(c column, candidate string, k resources.Kind) float64 {
	return f.formula(c, candidate, k).Value(everyone(len(f.of)))
}

// intervals computes formulas over the containers.
func (f *fleet) intervals(all []backtest.Formula) []backtest.Figure {
	return backtest.Intervals(len(f.of), all)
}

// value writes a figure, in percent where the column is.
func (c column) value(v float64) string {
	if c.percent {
		v *= 100
	}
	return number(v)
}

// cell writes a figure with its interval, in percent where the column is. One that all draws
// agree on has none.
func (c column) cell(f backtest.Figure) string {
	switch {
	case f.Low == f.Value && f.High == f.Value:
		return c.value(f.Value)
	case math.IsNaN(f.Low) || math.IsNaN(f.High):
		return c.value(f.Value) + " [not known]"
	}
	return fmt.Sprintf("%s [%s, %s]", c.value(f.Value), c.value(f.Low), c.value(f.High))
}

// number writes three digits, or all before the point.
func number(v float64) string {
	if math.Abs(v) >= 999.5 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
