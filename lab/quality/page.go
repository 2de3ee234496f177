package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"loadline.dev/loadline/hack/document"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

func (e *evidence) write(page, overview string) error {
	for _, block := range []struct{ page, what, figures string }{
		{page, "recordings", e.recordings()},
		{page, "choices", e.choices()},
		{page, "pods in the sum", e.podTable()},
		{page, "tables", e.tables()},
		{page, "frontiers", e.frontiers()},
		{page, "targets", e.targets()},
		{overview, "quality figures", e.overview()},
	} {
		if err := document.Fill(block.page, block.what, strings.TrimLeft(block.figures, "\n")); err != nil {
			return err
		}
	}
	return nil
}

func (e *evidence) recordings() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| recordings | told by | containers, tune half | report half | container-days, report half |\n|---|---|---|---|---|\n")
	for _, o := range origins {
		var n [parts]int
		days := 0.0
		for half := range n {
			results := ofCandidate(e.withOrigin(e.results[cpuUnlimited][half], o), upstreamDefault)
			n[half], days = len(results), 0
			for _, r := range results {
				days += r.Scored.Days
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %.0f |\n", o, originCriteria[o], n[tune], n[report], days)
	}
	return b.String()
}

func (e *evidence) tables() string {
	var b strings.Builder
	for i, p := range experiments {
		for _, o := range origins {
			results := e.withOrigin(e.results[i][report], o)
			if f := newFleet(results); len(f.containers) > 0 {
				fmt.Fprintf(&b, "\n### %s: %s\n\n%d containers.\n\n", strings.ToUpper(p.name[:1])+p.name[1:], o, len(f.containers))
				f.table(&b, p.kind, results)
			}
		}
	}
	return b.String()
}

var lastHeads = [resources.Kinds]string{
	resources.CPU:    "less slack than the best, mean % | fleet % | most unused, cores | most starved, %",
	resources.Memory: "reserves less than the best, mean % | fleet % | most unused, GiB | most OOM days, %",
}

func (f *fleet) table(b *strings.Builder, k resources.Kind, results []backtest.Result) {
	heads := []string{"recipe"}
	for _, c := range columns[k] {
		heads = append(heads, c.head)
	}
	heads = append(heads, strings.Split(lastHeads[k], " | ")...)
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	rows := f.presets(k)
	var best []string
	for _, v := range views {
		if name := f.bestUpstream(k, v); name != "" && !slices.Contains(best, name) {
			best = append(best, name)
		}
	}
	rows = slices.Insert(rows, 1, best...)
	var saved [2][]backtest.Figure // by view
	for i, v := range views {
		saved[i] = eachAtEqualRisk(results, rows, upstreamSweep(k), v.axes(k))
	}
	for i, name := range rows {
		cells := append(f.cells(k, name), savingCell(saved[0][i]), savingCell(saved[1][i]))
		harm, factor := starvedShare, 100.0
		if k == resources.Memory {
			harm = oomDayShare
		}
		cells = append(cells, f.worstCell(k, name, unusedMean, 1), f.worstCell(k, name, harm, factor))
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
}

func (f *fleet) cells(k resources.Kind, name string) []string {
	cells := []string{"`" + shortName(name) + "`"}
	var all []backtest.Formula
	for _, c := range columns[k] {
		all = append(all, f.formula(c, name, k))
	}
	for i, figure := range f.intervals(all) {
		cells = append(cells, columns[k][i].cell(figure))
	}
	return cells
}

func savingCell(figure backtest.Figure) string {
	if math.IsNaN(figure.Value) {
		return "–"
	}
	return column{percent: true}.cell(figure)
}

// worstCell formats the maximum of a figure, multiplied by factor, with its container.
func (f *fleet) worstCell(k resources.Kind, name string, figure perContainer, factor float64) string {
	v, at := worstContainer(figure)(k, f.tallies[name])
	if at < 0 || v == 0 {
		return "none"
	}
	return fmt.Sprintf("%s (%s)", number(factor*v), f.containers[at])
}

// bestUpstream returns the setting of the reference with the lowest cost and no more risk than its
// default, chosen on the reported containers. It is empty if none costs less.
func (f *fleet) bestUpstream(k resources.Kind, v view) string {
	best, least := "", f.columnValue(columns[k][v.cost], upstreamDefault, k)
	for _, name := range upstreamSweep(k) {
		if len(f.tallies[name]) == 0 || f.columnValue(columns[k][v.risk], name, k) > f.columnValue(columns[k][v.risk], upstreamDefault, k) {
			continue
		}
		if c := f.columnValue(columns[k][v.cost], name, k); c < least {
			best, least = name, c
		}
	}
	return best
}

// overview returns the figures in the overview of the project.
func (e *evidence) overview() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| recordings | recipe | CPU: slack, mean %% | CPU: starved, mean %% | memory: reserved x | memory: OOM days, mean %% |\n|---|---|---|---|---|---|\n")
	for _, o := range origins {
		cpu, memory := newFleet(e.withOrigin(e.results[cpuUnlimited][report], o)), newFleet(e.withOrigin(e.results[memoryLimited][report], o))
		for _, name := range []string{upstreamDefault, loadlineDefault} {
			if len(cpu.containers) == 0 {
				continue
			}
			cells := []string{string(o), "`" + shortName(name) + "`"}
			for k, f := range [resources.Kinds]*fleet{cpu, memory} {
				k := resources.Kind(k)
				for _, at := range []int{costMean, riskMean} {
					cell := "–"
					if len(f.containers) > 0 {
						cell = columns[k][at].cell(f.intervals([]backtest.Formula{f.formula(columns[k][at], name, k)})[0])
					}
					cells = append(cells, cell)
				}
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	return b.String()
}
