package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/resources"
)

// frontiers returns a frontier wherever our recipe costs significantly more than the best of the
// reference at equal risk: the whole interval of the saving is below zero.
func (e *evidence) frontiers() string {
	var b strings.Builder
	for i, p := range experiments {
		for _, o := range origins {
			results := e.withOrigin(e.results[i][report], o)
			for _, v := range views {
				figure, known := atEqualRisk(results, loadlineDefault, upstreamSweep(p.kind), v.axes(p.kind))
				if !known || !(figure.High < 0) { // also true for NaN
					continue
				}
				figure.Value, figure.Low, figure.High = -figure.Value, -figure.High, -figure.Low
				fmt.Fprintf(&b, "\n%s, %s, %s: %s %% more.\n\n", p.name, o, v.name, column{percent: true}.cell(figure))
				newFleet(results).frontierTable(&b, p.kind, v)
			}
		}
	}
	return b.String()
}

// frontierTable writes cost and risk of our presets, and of the best settings of the reference up
// to our highest cost.
func (f *fleet) frontierTable(b *strings.Builder, k resources.Kind, v view) {
	type point struct {
		name       string
		cost, risk float64
	}
	at := func(name string) point {
		return point{name, f.columnValue(columns[k][v.cost], name, k), f.columnValue(columns[k][v.risk], name, k)}
	}
	own := []point{at(upstreamDefault)}
	for _, name := range f.presets(k) {
		if strings.HasPrefix(name, "loadline") {
			own = append(own, at(name))
		}
	}
	var theirs []point
	for _, name := range upstreamSweep(k) {
		if f.tallies[name] != nil {
			theirs = append(theirs, at(name))
		}
	}
	order := func(a, b point) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.risk, b.risk)) }
	slices.SortStableFunc(own, order)
	slices.SortStableFunc(theirs, order)
	most, least := own[len(own)-1].cost, math.Inf(1)
	for _, p := range theirs { // by increasing cost, so the risk must decrease
		if p.risk < least && p.cost <= most {
			own, least = append(own, p), p.risk
		}
	}
	slices.SortStableFunc(own, order)
	fmt.Fprintf(b, "| recipe | %s | %s |\n|---|---|---|\n", columns[k][v.cost].head, columns[k][v.risk].head)
	for _, p := range own {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", shortName(p.name), columns[k][v.cost].value(p.cost), columns[k][v.risk].value(p.risk))
	}
}
