package backtest

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/printable"
)

// Setting is a setting that influences the result.
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
	Nodes    *NodeReport // nil: no nodes
}

// NewReport creates a report of results in which other candidates are compared with base.
func NewReport(results []backtest.Result, settings []Setting, base string) *Report {
	d := &Report{Settings: settings, Results: results}
	var tasks sync.WaitGroup // all read the results, each writes its own field
	tasks.Go(func() { d.Cold = backtest.Summarise(results, true) })
	tasks.Go(func() { d.Scored = backtest.Summarise(results, false) })
	tasks.Go(func() { d.Pairs = pairs(results, base) })
	tasks.Wait()
	for k := range resources.Kind(resources.Kinds) {
		d.Fronts[k] = backtest.Front(d.Scored, k)
	}
	for _, name := range candidates(results) {
		d.Costs = append(d.Costs, backtest.CostOf(results, name))
	}
	return d
}

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

func candidates(results []backtest.Result) []string {
	var names []string
	for i := range results {
		if name := results[i].Candidate; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// scale returns the divisor for display: millicores become cores.
func scale(k resources.Kind) float64 {
	if k == resources.CPU {
		return 1000
	}
	return 1
}

// hours returns core-hours or GiB-hours.
func hours(r *backtest.Result, sum float64) float64 { return sum / 3600 / backtest.Unit(r.Kind) }

// starvedHours returns the core-hours of work above the request, 0 for memory.
func starvedHours(r *backtest.Result) float64 {
	if r.Kind == resources.Memory {
		return 0
	}
	return hours(r, r.Scored.StarvedWork)
}

// duration formats seconds, rounded to minutes, or hours above 48 h.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d > 48*time.Hour {
		return d.Round(time.Hour).String()
	}
	return d.Round(time.Minute).String()
}

// figureColumn is a figure in a table. A percentage has the factor 100.
type figureColumn struct {
	figure, title string
	factor        float64
}

var tableColumns = [resources.Kinds][]figureColumn{
	resources.CPU: {
		{"slack", "SLACK FLEET %", 100}, {"slack_mean", "MEAN %", 100}, {"slack_peak_mean", "PEAK %", 100},
		{"starved_work", "STARVED WORK FLEET %", 100}, {"starved_work_mean", "MEAN %", 100}, {"starved_time_mean", "STARVED TIME %", 100},
		{"unserved_work", "UNSERVED %", 100}, {"changes_per_day", "CHANGES/DAY", 1},
	},
	resources.Memory: {
		{"slack", "SLACK FLEET %", 100}, {"slack_mean", "MEAN %", 100}, {"slack_peak_mean", "PEAK %", 100},
		{"oom_day_share", "OOM DAYS %", 100}, {"oom_per_day", "OOM/DAY", 1}, {"severe_day_share", "SEVERE DAYS %", 100},
		{"above_request", "ABOVE REQUEST %", 100}, {"changes_per_day", "CHANGES/DAY", 1},
	},
}

func titles(columns []figureColumn) (all []string) {
	for _, c := range columns {
		all = append(all, c.title)
	}
	return all
}

func cells(k resources.Kind, figure func(string) (backtest.Figure, bool)) (all []string) {
	for _, c := range tableColumns[k] {
		f, _ := figure(c.figure)
		all = append(all, interval(f, c.factor))
	}
	return all
}

// Table writes the settings, and a line for each kind, candidate and, if requested, class.
func (d *Report) Table(out io.Writer, classes bool) error {
	w := bufio.NewWriter(out) // it keeps the first error
	for _, s := range d.Settings {
		printable.Fprintf(w, "%s: %s\n", s.Name, s.Value)
	}
	for k := range resources.Kind(resources.Kinds) {
		d.plane(w, k, classes)
		d.pairs(w, k)
	}
	if len(d.Costs) > 0 {
		printable.Fprintf(w, "\nCost: unused core-hours + %g x unused GiB-hours + %d x OOM kills + %d x evictions + %d x starved core-hours\n",
			backtest.GiBHour, backtest.KillPrice, backtest.EvictionPrice, backtest.StarvedCoreHour)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		printable.Fprintln(t, "\tCOST\tCORE-HOURS\tGIB-HOURS\tOOM\tEVICTIONS\tSTARVED\t")
		for _, c := range d.Costs {
			printable.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%d\t%d\t%.0f\t\n", c.Candidate, c.Total, c.CoreHours, c.GiBHours, c.Kills, c.Evictions, c.StarvedCoreHours)
		}
		_ = t.Flush()
	}
	if d.Nodes != nil {
		d.Nodes.table(w)
	}
	return w.Flush()
}

func (d *Report) plane(w io.Writer, k resources.Kind, classes bool) {
	first := true
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i := range d.Scored {
		s := &d.Scored[i]
		if s.Kind != k || s.Class != "" && !classes {
			continue
		}
		if first {
			printable.Fprintf(w, "\n%s: %d containers, %.1f container-days, steps of %s; intervals of 95 %% from %d draws of containers (seed %d); * is not dominated\n",
				k, s.Containers, s.Days, d.steps(k), backtest.Draws, backtest.Seed)
			if k == resources.Memory {
				printable.Fprintf(w, "rates below %.2g a day cannot be seen; none in %.0f days means less than %.2g\n", s.Finest, s.Days, 3*s.Finest)
			}
			printable.Row(t, slices.Concat([]string{"", "CONTAINERS"}, titles(tableColumns[k]), []string{"CONVERGED AFTER", "NEVER %", ""})...)
			first = false
		}
		median := "-"
		if !math.IsInf(s.Near.Median, 1) {
			median = duration(s.Near.Median)
		}
		never := strconv.FormatFloat(100*s.Near.Censored, 'f', 0, 64)
		printable.Row(t, slices.Concat([]string{d.label(s), strconv.Itoa(s.Containers)}, cells(k, s.Figure), []string{median, never, ""})...)
	}
	_ = t.Flush()
}

// pairs writes the differences from the base. Differences of percentages are in points.
func (d *Report) pairs(w io.Writer, k resources.Kind) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	first := true
	for i := range d.Pairs {
		p := &d.Pairs[i]
		if p.Kind != k {
			continue
		}
		if first {
			printable.Fprintf(w, "\n%s against %s, the same containers:\n", k, p.Base)
			printable.Row(t, slices.Concat([]string{"", "RESERVED x"}, titles(tableColumns[k]), []string{""})...)
			first = false
		}
		printable.Row(t, slices.Concat([]string{p.Other, interval(p.Reserved, 1)}, cells(k, p.Difference), []string{""})...)
	}
	_ = t.Flush()
}

// label names the line of a summary, with a star on the front.
func (d *Report) label(s *backtest.Summary) string {
	if s.Class != "" {
		return string(s.Class) + ": " + s.Candidate
	}
	for _, p := range d.Fronts[s.Kind] {
		if p.Candidate == s.Candidate && p.Dominated == "" {
			return "* " + s.Candidate
		}
	}
	return s.Candidate
}

func interval(f backtest.Figure, factor float64) string {
	return fmt.Sprintf("%s [%s, %s]", figureText(f.Value*factor), figureText(f.Low*factor), figureText(f.High*factor))
}

// figureText formats a number with three significant digits.
func figureText(v float64) string {
	switch size := math.Abs(v); {
	case size >= 99.95 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case size >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case size >= 0.0995:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// steps returns the shortest and the longest step of the results of a kind. Events shorter than a
// step are invisible, so results with different steps are not comparable.
func (d *Report) steps(k resources.Kind) string {
	least, most := math.Inf(1), 0.0
	for i := range d.Results {
		if step := d.Results[i].Step.Seconds(); d.Results[i].Kind == k {
			least, most = min(least, step), max(most, step)
		}
	}
	if least == most {
		return fmt.Sprintf("%g s", least)
	}
	return fmt.Sprintf("%g to %g s", least, most)
}
