package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	command "loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// The settings of the reference that are swept: the best of them is chosen with
// hindsight, which is more than anybody who sets flags can do.
var (
	cpuShares     = []float64{0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1}
	cpuMargins    = []float64{0, 0.15, 0.30}
	memoryShares  = []float64{0.8, 0.9, 0.95, 1}
	memoryMargins = []float64{0, 0.05, 0.10, 0.15, 0.20, 0.30, 0.50, 0.75, 1, 2}
)

// Which study is which.
const (
	ofCPU = iota
	ofMemory
	ofEqualLimits
)

// study is a plane in which recipes are compared with the reference.
type study struct {
	name       string
	kind       resources.Kind
	limit      string
	candidates []string
	planes     []plane
}

var studies = [...]study{
	{"CPU, no limit", resources.CPU, "none",
		[]string{"loadline", "loadline:cpu=calm-lean", "loadline:cpu=calm-safe", "loadline:cpu=tracking", "loadline:cpu=tracking-safe", "autopilot", "autopilot:models=ensemble"},
		[]plane{{kind: resources.CPU, cost: "slack_mean", risk: "starved_work_mean"}, {kind: resources.CPU, cost: "slack", risk: "starved_work"}}},
	{"memory, limit 1.2 x request", resources.Memory, "1.2", memoryCandidates,
		[]plane{{kind: resources.Memory, cost: reserved, risk: "oom_day_share"}, {kind: resources.Memory, cost: "slack_peak_mean", risk: "oom_day_share"}}},
	{"memory, limit equal to request", resources.Memory, "1", memoryCandidates,
		[]plane{{kind: resources.Memory, cost: reserved, risk: "oom_day_share"}, {kind: resources.Memory, cost: reservedFleet, risk: "oom_day_share"}}},
}

var memoryCandidates = []string{"loadline", "loadline:margin=0.1", "loadline:memory=lean", "loadline:memory=equal", "loadline:memory=safe", "autopilot", "autopilot:models=ensemble"}

// sweep returns the recipe of the reference with all settings that are compared.
func sweep(k resources.Kind) []string {
	shares, margins := cpuShares, cpuMargins
	if k == resources.Memory {
		shares, margins = memoryShares, memoryMargins
	}
	var all []string
	for _, share := range shares {
		for _, margin := range margins {
			all = append(all, fmt.Sprintf("vpa:target-%s=%g,margin=%g,%s", k, share, margin, floors))
		}
	}
	return all
}

// planes prints what recipes save against the best of the reference at equal risk, on
// the half of the recordings that nothing was tuned on, and then what is left of our
// targets.
func planes(recordings []string, part string, out io.Writer) error {
	var seen evidence
	for i, s := range studies {
		best := sweep(s.kind)
		candidates := []string{standard}
		for _, name := range s.candidates {
			candidates = append(candidates, withFloors(name))
		}
		all := slices.Concat(candidates, best)
		for _, name := range [resources.Kinds][]string{resources.CPU: calm, resources.Memory: twoPeak}[s.kind] {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
		results, err := replayed(recordings, part, s.kind, s.limit, all)
		if err != nil {
			return err
		}
		show(out, s, candidates, best, lasting(results, true))
		seen.studies[i] = results
	}
	var err error
	if seen.limited, err = replayed(recordings, part, resources.CPU, "1", []string{standard, withFloors("loadline")}); err != nil {
		return err
	}
	seen.targets(out)
	return nil
}

func replayed(recordings []string, part string, k resources.Kind, limit string, recipes []string) ([]backtest.Result, error) {
	c := command.Default()
	c.Baselines, c.Part, c.Kinds, c.Recipes = false, part, []string{k.String()}, recipes
	c.CPULimit, c.MemoryLimit = limit, limit
	return command.Replay(context.Background(), c, recordings...)
}

// lasting returns the results of long recordings, or of those that are too short for
// a day of warm-up.
func lasting(results []backtest.Result, long bool) []backtest.Result {
	return where(results, func(r *backtest.Result) bool { return r.Short != long })
}

// where returns some of the results.
func where(results []backtest.Result, keep func(*backtest.Result) bool) (some []backtest.Result) {
	for i := range results {
		if keep(&results[i]) {
			some = append(some, results[i])
		}
	}
	return some
}

func withFloors(name string) string {
	if strings.Contains(name, ":") {
		return name + "," + floors
	}
	return name + ":" + floors
}

// standard is the reference with its own settings.
var standard = withFloors("vpa")

func show(out io.Writer, s study, candidates, best []string, scores []backtest.Result) {
	fmt.Fprintf(out, "%s, against the best of %d settings of the reference, %% less [95 %%]:\n", s.name, len(best))
	for _, p := range s.planes {
		fmt.Fprintf(out, "  %s at equal %s\n", p.cost, p.risk)
		for _, name := range candidates {
			f, ok := atEqualRisk(scores, name, best, p)
			if !ok {
				fmt.Fprintf(out, "    %-60s no setting of the reference has its risk\n", name)
				continue
			}
			fmt.Fprintf(out, "    %-60s %s\n", name, percent(f))
		}
	}
	for _, sum := range backtest.Summarise(scores, false) {
		if sum.Class != "" || sum.Kind != s.kind || !slices.Contains(candidates, sum.Candidate) {
			continue
		}
		fmt.Fprintf(out, "  %s:", sum.Candidate)
		for _, name := range []string{"slack", "slack_mean", "slack_peak_mean", "starved_time_mean", "starved_work", "starved_work_mean", "oom_day_share", "changes_per_day"} {
			if f, ok := sum.Figure(name); ok {
				fmt.Fprintf(out, " %s %.4g [%.4g, %.4g]", name, f.Value, f.Low, f.High)
			}
		}
		fmt.Fprintln(out)
	}
}
