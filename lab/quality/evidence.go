package main

import (
	"context"
	"slices"
	"time"

	command "loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// experiment is a resource and a limit policy under which recordings are replayed.
type experiment struct {
	name  string
	kind  resources.Kind
	limit string // flag value of the backtester
}

const (
	cpuUnlimited = iota
	cpuLimited
	memoryLimited
	memoryEqual
	memoryWide
)

var experiments = [...]experiment{
	cpuUnlimited:  {"CPU, no limit", resources.CPU, "none"},
	cpuLimited:    {"CPU, limit equal to request", resources.CPU, "1"},
	memoryLimited: {"memory, limit 1.2 x request", resources.Memory, "1.2"},
	memoryEqual:   {"memory, limit equal to request", resources.Memory, "1"},
	memoryWide:    {"memory, limit 5 x request", resources.Memory, "5"},
}

// origin classifies recordings by the recorded resources, length and step.
type origin string

const (
	machines  origin = "machines"           // CPU and memory, a day or longer, steps over a minute
	byMinute  origin = "pods by the minute" // the same in steps of a minute or less
	shortPods origin = "short pods"         // CPU and memory, less than a day
	cpuOnly   origin = "CPU alone"          // no memory
)

var origins = []origin{machines, byMinute, shortPods, cpuOnly}

var originCriteria = map[origin]string{
	machines:  "CPU and memory, a day or longer, steps of more than a minute",
	byMinute:  "CPU and memory, a day or longer, steps of a minute or less",
	shortPods: "CPU and memory, less than a day",
	cpuOnly:   "no memory",
}

func (o origin) isPods() bool { return o == byMinute || o == shortPods }

// originOf returns the origin of the recording that a result is from.
func originOf(r *backtest.Result, hasMemory bool) origin {
	switch {
	case !hasMemory:
		return cpuOnly
	case r.Cold.Days+r.Scored.Days < 1:
		return shortPods
	case r.Step <= time.Minute:
		return byMinute
	}
	return machines
}

// container identifies a recording of one container.
type container struct{ dataset, workload, name string }

func containerOf(r *backtest.Result) container { return container{r.Dataset, r.Workload, r.Container} }

// The halves of the recordings: recipes are chosen on one and reported on the other.
const (
	tune = iota
	report
	parts
)

var partNames = [parts]string{tune: "tune", report: "report"}

type evidence struct {
	results [len(experiments)][parts][]backtest.Result
	origins map[container]origin
}

// collect replays recordings in all experiments under all presets. For a page, it replays the
// report half under all settings of pageRecipes.
func collect(recordings []string, page bool) (*evidence, error) {
	e := &evidence{}
	for i, p := range experiments {
		for half := range partNames {
			recipes := presetRecipes(p.kind)
			if page && half == report {
				recipes = pageRecipes(p.kind)
			}
			if err := e.replay(i, half, recipes, recordings); err != nil {
				return nil, err
			}
		}
	}
	e.findOrigins()
	return e, nil
}

func (e *evidence) replay(index, half int, recipes, recordings []string) error {
	p := experiments[index]
	c := command.Default()
	c.Baselines, c.Part, c.Kinds, c.Recipes = false, partNames[half], []string{p.kind.String()}, recipes
	c.CPULimit, c.MemoryLimit = p.limit, p.limit
	results, err := command.Replay(context.Background(), c, recordings...)
	e.results[index][half] = append(e.results[index][half], results...)
	return err
}

func (e *evidence) findOrigins() {
	e.origins = map[container]origin{}
	hasMemory := map[container]bool{}
	for _, r := range e.all(memoryLimited) {
		hasMemory[containerOf(&r)] = true
	}
	for i := range experiments {
		for _, r := range e.all(i) {
			at := containerOf(&r)
			e.origins[at] = originOf(&r, hasMemory[at])
		}
	}
}

// all returns the results of both halves under presets. Only the report half has other recipes.
func (e *evidence) all(index int) []backtest.Result {
	names := presetRecipes(experiments[index].kind)
	return filterResults(slices.Concat(e.results[index][tune], e.results[index][report]), func(r *backtest.Result) bool {
		return slices.Contains(names, r.Candidate)
	})
}

func (e *evidence) withOrigin(results []backtest.Result, o origin) []backtest.Result {
	return filterResults(results, func(r *backtest.Result) bool { return e.origins[containerOf(r)] == o })
}

// byLength returns the results of long recordings, or of the recordings that are too short for a
// day of warm-up.
func byLength(results []backtest.Result, long bool) []backtest.Result {
	return filterResults(results, func(r *backtest.Result) bool { return r.Short != long })
}

func ofCandidate(results []backtest.Result, candidate string) []backtest.Result {
	return filterResults(results, func(r *backtest.Result) bool { return r.Candidate == candidate })
}

func filterResults(results []backtest.Result, predicate func(*backtest.Result) bool) (filtered []backtest.Result) {
	for i := range results {
		if predicate(&results[i]) {
			filtered = append(filtered, results[i])
		}
	}
	return filtered
}
