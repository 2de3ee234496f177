package main

import (
	"fmt"
	"strings"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// view selects the cost and risk columns for choosing a recipe.
type view struct {
	name       string
	cost, risk int
}

// views compares by container, where small containers weigh the same, and by fleet totals.
var views = []view{{"by container", costMean, riskMean}, {"fleet", costFleet, riskFleet}}

func (v view) axes(k resources.Kind) axes {
	return axes{k, columns[k][v.cost].measure, columns[k][v.risk].measure}
}

// maxChangesRatio is the maximum ratio of a recipe's changes to the changes of the reference's
// default if each change restarts the pod.
const maxChangesRatio = 2

// choosePreset returns the preset with the lowest cost and no more risk than the reference's
// default. With restarts, the changes are limited by maxChangesRatio. The default stays unless
// another preset costs less.
func (f *fleet) choosePreset(k resources.Kind, v view, restarts bool) string {
	cost, risk, moves := columns[k][v.cost], columns[k][v.risk], columns[k][changesColumn(k)]
	maxRisk, maxMoves := f.columnValue(risk, upstreamDefault, k), maxChangesRatio*f.columnValue(moves, upstreamDefault, k)
	chosen, lowestCost := upstreamDefault, f.columnValue(cost, upstreamDefault, k)
	for _, name := range f.presets(k) {
		if f.columnValue(risk, name, k) > maxRisk || restarts && f.columnValue(moves, name, k) > maxMoves {
			continue
		}
		if c := f.columnValue(cost, name, k); c < lowestCost {
			chosen, lowestCost = name, c
		}
	}
	return chosen
}

// choices returns a table of the preset chosen on the tune half for each experiment, with its
// figures on the report half.
func (e *evidence) choices() string {
	var b strings.Builder
	for i, p := range experiments {
		cost, risk := "slack", "starved work"
		if p.kind == resources.Memory {
			cost, risk = "reserved", "OOM days"
		}
		fmt.Fprintf(&b, "\n%s:\n\n| recordings | resize | chosen for | preset | %s against `vpa` | %s against `vpa` | changes a day | on the report half |\n|---|---|---|---|---|---|---|---|\n", p.name, cost, risk)
		for _, o := range origins {
			tuned, reported := newFleet(e.withOrigin(e.results[i][tune], o)), newFleet(e.withOrigin(e.results[i][report], o))
			if len(tuned.containers) == 0 || len(reported.containers) == 0 {
				continue
			}
			for _, v := range views {
				inPlace, restarts := tuned.choosePreset(p.kind, v, false), tuned.choosePreset(p.kind, v, true)
				if inPlace == restarts {
					fmt.Fprintf(&b, "| %s | any | %s |%s\n", o, v.name, reported.outcomeCells(p.kind, v, inPlace))
					continue
				}
				fmt.Fprintf(&b, "| %s | in place | %s |%s\n", o, v.name, reported.outcomeCells(p.kind, v, inPlace))
				fmt.Fprintf(&b, "| %s | restarts | %s |%s\n", o, v.name, reported.outcomeCells(p.kind, v, restarts))
			}
		}
	}
	return b.String()
}

func (f *fleet) outcomeCells(k resources.Kind, v view, chosen string) string {
	if chosen == upstreamDefault {
		return " `vpa` | | | | |"
	}
	cost, risk := columns[k][v.cost], columns[k][v.risk]
	figures := f.intervals([]backtest.Formula{f.relativeToDefault(cost, chosen, k), f.relativeToDefault(risk, chosen, k), f.formula(columns[k][changesColumn(k)], chosen, k)})
	same := map[bool]float64{true: 1}[cost.times]
	verdict := "holds"
	switch saves, risks := figures[0], figures[1]; {
	case risks.Low > 0:
		verdict = "**more risk**"
	case saves.Value >= same:
		verdict = "**costs no less**"
	case saves.High >= same:
		verdict = "saving within chance"
	case risks.Value > 0:
		verdict = "risk within chance"
	}
	return fmt.Sprintf(" `%s` | %s | %s | %s | %s |", shortName(chosen), cost.difference(figures[0]), risk.difference(figures[1]), columns[k][changesColumn(k)].cell(figures[2]), verdict)
}

func (c column) difference(f backtest.Figure) string {
	if c.times {
		return "x " + c.cell(f)
	}
	return fmt.Sprintf("%+.3g [%.3g, %.3g] points", 100*f.Value, 100*f.Low, 100*f.High)
}
