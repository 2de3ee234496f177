package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

type target struct {
	name           string
	expected, gate string
	min            float64 // numeric gate, the minimum of the figure
}

func (t target) row(found backtest.Figure, known bool) string {
	here, verdict := "nothing to compare with", missed
	if known {
		here = percent(found)
	}
	if known && found.Value >= t.min {
		verdict = "met"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", t.name, t.expected, t.gate, here, verdict)
}

// targets returns a table of all targets, and one of the risk by class of load.
func (e *evidence) targets() string {
	out := &strings.Builder{}
	fmt.Fprintf(out, "| target | expected | gate | here | |\n|---|---|---|---|---|\n")
	for _, row := range append(e.cpuTargets(), e.memoryTargets()...) {
		fmt.Fprintln(out, row)
	}
	fmt.Fprintf(out, "\n| class | containers | starved work of the reference | of ours | | OOM days of the reference | of ours | |\n|---|---|---|---|---|---|---|---|\n")
	cpu, memory := byLength(e.results[cpuUnlimited][report], true), byLength(e.results[memoryLimited][report], true)
	for _, class := range replay.Classes() {
		a, n := riskCells(cpu, class, resources.CPU, "starved_work_mean")
		b, _ := riskCells(memory, class, resources.Memory, "oom_day_share")
		if n > 0 {
			fmt.Fprintf(out, "| %s | %d | %s | %s |\n", class, n, a, b)
		}
	}
	for _, class := range replay.Classes() {
		if cells, n := riskCells(cpu, class, resources.CPU, "starved_work_mean"); n > 0 && strings.Contains(cells, missed) {
			fmt.Fprintf(out, "\nCPU of class %s:\n\n", class)
			newFleet(filterResults(cpu, func(r *backtest.Result) bool { return r.Class == class })).frontierTable(out, resources.CPU, views[0])
		}
	}
	return out.String()
}

const missed = "**missed**"

func (e *evidence) cpuTargets() []string {
	long, limited := byLength(e.results[cpuUnlimited][report], true), byLength(e.results[cpuLimited][report], true)
	best := upstreamSweep(resources.CPU)
	mean, whole := axes{kind: resources.CPU, cost: "slack_mean", risk: "starved_work_mean"}, axes{kind: resources.CPU, cost: "slack", risk: "starved_work"}
	changes, _ := candidateFigure(long, tracking, resources.CPU, "changes_per_day")
	quick := fmt.Sprintf("CPU tracking, %.3g [%.3g, %.3g] changes a day: slack at equal starved work", changes.Value, changes.Low, changes.High)
	more, _ := backtest.Compare(long, upstreamDefault, loadlineDefault, resources.CPU).Difference("changes_per_day")
	calmly := fmt.Sprintf("CPU calm, %+.2f [%+.2f, %+.2f] changes a day: starved work at the slack of the reference's default", more.Value, more.Low, more.High)
	unserved, known := candidateFigure(limited, loadlineDefault, resources.CPU, "unserved_work")
	theirs, _ := candidateFigure(limited, upstreamDefault, resources.CPU, "unserved_work")
	saved, both := backtest.Compare(warmUpResults(long), loadlineDefault, upstreamDefault, resources.CPU).Difference("slack_mean")
	return []string{
		target{"CPU calm: slack at equal starved work, per container, against the best of the reference", "16 % less", "11 %", 0.11}.row(atEqualRisk(long, loadlineDefault, best, mean)),
		target{calmly, "60 % less", "35 %", 0.35}.row(atEqualCost(long, upstreamDefault, loadlineCurves[resources.CPU], mean)),
		target{quick + ", per container", "24 % less", "18 %", 0.18}.row(atEqualRisk(long, tracking, best, mean)),
		target{quick + ", fleet", "30 % less", "24 %", 0.24}.row(atEqualRisk(long, tracking, best, whole)),
		target{fmt.Sprintf("CPU with limit = request: work served (the reference: %.0f %%)", 100-100*theirs.Value), "99 %", "97 %", 0.97}.row(complement(unserved), known),
		target{"first 24 hours, CPU: slack, in points", "20 less", "15", 0.15}.row(saved, both),
		target{"first 24 hours, CPU: starved work", "67 % less", "50 %", 0.50}.row(relativeSaving(warmUpResults(long), loadlineDefault, upstreamDefault, resources.CPU, "starved_work_mean")),
	}
}

func (e *evidence) memoryTargets() []string {
	results := e.results[memoryLimited][report]
	long, short, equal := byLength(results, true), byLength(results, false), byLength(e.results[memoryEqual][report], true)
	best := upstreamSweep(resources.Memory)
	mean, whole := axes{kind: resources.Memory, cost: reserved, risk: "oom_day_share"}, axes{kind: resources.Memory, cost: reservedFleet, risk: "oom_day_share"}
	slack, known := candidateFigure(short, loadlineDefault, resources.Memory, "slack_mean")
	theirs, _ := candidateFigure(short, upstreamDefault, resources.Memory, "slack_mean")
	return []string{
		target{"memory, limit 1.2 x: reserved at equal OOM days, against the best of the reference", "12 % less", "3 %", 0.03}.row(atEqualRisk(long, loadlineDefault, best, mean)),
		target{"memory, limit 1.2 x: OOM days at the memory of the reference's default", "38 % fewer", "15 %", 0.15}.row(atEqualCost(long, upstreamDefault, loadlineCurves[resources.Memory], mean)),
		target{"memory, limit = request: GiB of the fleet at equal OOM days, against the best of the reference", "no more", "6 % more", -0.06}.row(atEqualRisk(equal, loadlineDefault, best, whole)),
		target{fmt.Sprintf("short pods: share of the memory that is used (the reference: %.0f %%)", 100-100*theirs.Value), "62 %", "55 %", 0.55}.row(complement(slack), known),
	}
}

func complement(f backtest.Figure) backtest.Figure {
	return backtest.Figure{Value: 1 - f.Value, Low: 1 - f.High, High: 1 - f.Low}
}

// warmUpResults returns results with the warm-up as their scored phase.
func warmUpResults(results []backtest.Result) []backtest.Result {
	first := slices.Clone(results)
	for i := range first {
		first[i].Scored = first[i].Cold
	}
	return first
}

func candidateFigure(results []backtest.Result, candidate string, k resources.Kind, name string) (backtest.Figure, bool) {
	for _, s := range backtest.Summarise(ofCandidate(results, candidate), false) {
		if s.Class == "" && s.Kind == k {
			return s.Figure(name)
		}
	}
	return backtest.Figure{}, false
}

// maxRiskIncrease is the tolerated relative increase of risk for a class of load.
const maxRiskIncrease = 0.05

// riskCells returns table cells with the risk of a class of load under the reference and under our
// recipe, and the number of containers.
func riskCells(results []backtest.Result, class replay.Class, k resources.Kind, name string) (cells string, n int) {
	classResults := filterResults(results, func(r *backtest.Result) bool { return r.Class == class })
	theirs, known := candidateFigure(classResults, upstreamDefault, k, name)
	own, _ := candidateFigure(classResults, loadlineDefault, k, name)
	if !known {
		return " | | ", 0
	}
	verdict := ""
	if own.Value > theirs.Value*(1+maxRiskIncrease) {
		verdict = missed
	}
	return fmt.Sprintf("%s | %s | %s", percent(theirs), percent(own), verdict), len(ofCandidate(classResults, upstreamDefault))
}

func percent(f backtest.Figure) string {
	if math.IsNaN(f.Low) || math.IsNaN(f.High) {
		return fmt.Sprintf("%.3g %% [not known]", 100*f.Value)
	}
	return fmt.Sprintf("%.3g %% [%.3g, %.3g]", 100*f.Value, 100*f.Low, 100*f.High)
}
