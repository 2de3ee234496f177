package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// gauge is a figure that must not grow.
type gauge struct {
	name  string
	value func(k resources.Kind, of []*backtest.Tally) (v float64, worst int) // worst: index of the container with the figure, -1 = all

	// noise names the gauge with the number of events behind this figure, which sets the tolerance
	// for chance. Empty = fixed tolerance.
	noise string
}

// gauges are the gated figures of each resource: cost and risk in total, in the mean over
// containers, and of the worst container.
var gauges = [resources.Kinds][]gauge{
	resources.CPU: {
		{name: "unused core-hours", value: total(unusedHours)},
		{name: "slack, mean", value: backtestFigure("slack_mean")},
		{name: "starved core-hours", value: total(starvedHours)},
		{name: "starved work, mean", value: backtestFigure("starved_work_mean")},
		{name: "changes a day", value: backtestFigure("changes_per_day")},
		{name: "unused cores, worst container", value: worstContainer(unusedMean)},
		{name: "starved work, worst container", value: worstContainer(starvedShare)},
	},
	resources.Memory: {
		{name: "unused GiB-hours", value: total(unusedHours)},
		{name: "slack, mean", value: backtestFigure("slack_mean")},
		{name: oomKills, value: total(func(_ resources.Kind, t *backtest.Tally) float64 { return float64(t.Kills) }), noise: oomKills},
		{name: "OOM days, mean", value: backtestFigure(oomDaysMean), noise: oomKills},
		{name: "time above request", value: backtestFigure("above_request")},
		{name: "changes a day", value: backtestFigure("changes_per_day")},
		{name: "unused GiB, worst container", value: worstContainer(unusedMean)},
		{name: worstOOMDays, value: worstContainer(func(_ resources.Kind, t *backtest.Tally) float64 { return float64(t.KillDays) }), noise: worstOOMDays},
	},
}

const (
	oomKills     = "OOM kills"
	worstOOMDays = "OOM days, worst container"
)

func unusedHours(k resources.Kind, t *backtest.Tally) float64 {
	return t.Over / 3600 / backtest.Unit(k)
}

func starvedHours(k resources.Kind, t *backtest.Tally) float64 {
	return t.StarvedWork / 3600 / backtest.Unit(k)
}

func unusedMean(k resources.Kind, t *backtest.Tally) float64 {
	return t.SlackAbsolute() / backtest.Unit(k)
}

func starvedShare(_ resources.Kind, t *backtest.Tally) float64 { return t.StarvedWorkShare() }

// oomDayShare is the share of a container's days with an OOM kill.
func oomDayShare(_ resources.Kind, t *backtest.Tally) float64 {
	if t.Dates == 0 {
		return 0
	}
	return float64(t.KillDays) / float64(t.Dates)
}

type perContainer = func(resources.Kind, *backtest.Tally) float64

func total(f perContainer) func(resources.Kind, []*backtest.Tally) (float64, int) {
	return func(k resources.Kind, of []*backtest.Tally) (sum float64, _ int) {
		for _, t := range of {
			sum += f(k, t)
		}
		return sum, -1
	}
}

func backtestFigure(name string) func(resources.Kind, []*backtest.Tally) (float64, int) {
	return func(k resources.Kind, of []*backtest.Tally) (float64, int) {
		return measure(name, k, of).value(allIndexes(len(of))), -1
	}
}

// worstContainer returns the maximum and the index of the first container that has it.
func worstContainer(f perContainer) func(resources.Kind, []*backtest.Tally) (float64, int) {
	return func(k resources.Kind, of []*backtest.Tally) (v float64, worst int) {
		for i, t := range of {
			if is := f(k, t); is > v {
				v, worst = is, i
			}
		}
		return v, worst
	}
}

// row is the figures of a recipe on the recordings of an origin.
type row struct {
	Recipe     string
	Containers int
	Figures    map[string]float64
	Worst      map[string]string // containers with the worst figures, absent if 0
}

type table map[string]map[origin][]row

func (e *evidence) table() table {
	found := table{}
	for i, p := range experiments {
		found[p.name] = map[origin][]row{}
		for _, o := range origins {
			f := newFleet(e.withOrigin(e.all(i), o))
			if len(f.containers) == 0 {
				continue
			}
			for _, recipe := range f.presets(p.kind) {
				found[p.name][o] = append(found[p.name][o], f.row(recipe, p.kind))
			}
		}
	}
	return found
}

func (t table) print(set string, out io.Writer) {
	for _, p := range experiments {
		for _, o := range origins {
			for _, r := range t[p.name][o] {
				fmt.Fprintf(out, "%s, %s, %s, %s:", set, p.name, o, shortName(r.Recipe))
				for _, g := range gauges[p.kind] {
					fmt.Fprintf(out, " %s %.6g;", g.name, r.Figures[g.name])
				}
				fmt.Fprintln(out)
			}
		}
	}
}

func (f *fleet) row(recipe string, k resources.Kind) row {
	r := row{Recipe: recipe, Containers: len(f.containers), Figures: map[string]float64{}, Worst: map[string]string{}}
	for _, g := range gauges[k] {
		v, worst := g.value(k, f.tallies[recipe])
		r.Figures[g.name] = v
		if worst >= 0 && v > 0 {
			r.Worst[g.name] = f.containers[worst].String()
		}
	}
	return r
}

// compareTable compares a table with the committed one, or replaces that on update.
func compareTable(set string, found table, results string, update bool) ([]string, error) {
	file := filepath.Join(results, set+".json")
	if update {
		content, err := json.MarshalIndent(found, "", " ")
		if err != nil {
			return nil, err
		}
		return nil, os.WriteFile(file, append(content, '\n'), 0o644)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("committed result: %w", err)
	}
	var committed table
	if err := json.Unmarshal(content, &committed); err != nil {
		return nil, fmt.Errorf("committed result %s: %w", file, err)
	}
	var worse []string
	for _, p := range experiments {
		for _, o := range origins {
			more, err := compareRows(committed[p.name][o], found[p.name][o], p.kind)
			if err != nil {
				return nil, fmt.Errorf("committed result %s: %s, %s: %w: if this is intended, run with -update", file, p.name, o, err)
			}
			for _, reason := range more {
				worse = append(worse, fmt.Sprintf("%s, %s, %s, %s: %s", set, p.name, o, shortName(reason.recipe), reason.text))
			}
		}
	}
	return worse, nil
}

type reason struct{ recipe, text string }

// compareRows compares the rows of an experiment and origin. It fails if recipes or the number of
// containers differ.
func compareRows(committed, found []row, k resources.Kind) (worse []reason, err error) {
	for _, was := range committed {
		if !slices.ContainsFunc(found, func(r row) bool { return r.Recipe == was.Recipe }) {
			return nil, fmt.Errorf("has %s, which was not replayed", was.Recipe)
		}
	}
	for _, is := range found {
		at := slices.IndexFunc(committed, func(r row) bool { return r.Recipe == is.Recipe })
		if at < 0 {
			return nil, fmt.Errorf("has no %s", is.Recipe)
		}
		if was := committed[at].Containers; was != is.Containers {
			return nil, fmt.Errorf("%s was replayed on %d containers, not on %d", is.Recipe, was, is.Containers)
		}
		for _, text := range regressions(committed[at], is, k) {
			worse = append(worse, reason{is.Recipe, text})
		}
	}
	return worse, nil
}

// maxGrowth is the tolerated growth of a figure.
const maxGrowth = 0.02

// regressions returns the reasons why a row is worse than before: a figure grew by more than 2 %,
// or by more than chance explains if it counts kills.
func regressions(was, is row, k resources.Kind) (reasons []string) {
	for _, g := range gauges[k] {
		before, now := was.Figures[g.name], is.Figures[g.name]
		share, why := maxGrowth, "more than 2 % worse"
		if g.noise != "" {
			share, why = 2/math.Sqrt(max(was.Figures[g.noise], 1)), "more than chance explains"
		}
		if now <= before*(1+share)+1e-9 {
			continue
		}
		of := ""
		if name := is.Worst[g.name]; name != "" {
			of = " (" + name + ")"
		}
		reasons = append(reasons, fmt.Sprintf("%s: %.6g%s, was %.6g: %s", g.name, now, of, before, why))
	}
	return reasons
}
