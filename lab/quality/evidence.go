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
type plane struct {
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

var planes = [...]plane{
	cpuUnlimited:  {"CPU, no limit", resources.CPU, "none"},
	cpuLimited:    {"CPU, limit equal to request", resources.CPU, "1"},
	memoryLimited: {"memory, limit 1.2 x request", resources.Memory, "1.2"},
	memoryEqual:   {"memory, limit equal to request", resources.Memory, "1"},
	memoryWide:    {"memory, limit 5 x request", resources.Memory, "5"},
}

// origin classifies recordings by the recorded resources, length and step.
type origin string

const (
	machines origin = "machines"           // CPU and memory, a day or longer, steps over a minute
	byMinute origin = "pods by the minute" // the same in steps of a minute or less
	brief    origin = "short pods"         // CPU and memory, less than a day
	cpuAlone origin = "CPU alone"          // no memory
)

var origins = []origin{machines, byMinute, brief, cpuAlone}

var told = map[origin]string{
	machines: "CPU and memory, a day or longer, steps of more than a minute",
	byMinute: "CPU and memory, a day or longer, steps of a minute or less",
	brief:    "CPU and memory, less than a day",
	cpuAlone: "no memory",
}

func (o origin) isPods() bool { return o == byMinute || o == brief }

// originOf returns the origin of the recording that a result is from.
func originOf(r *backtest.Result, hasMemory bool) origin {
	switch {
	case !hasMemory:
		return cpuAlone
	case r.Cold.Days+r.Scored.Days < 1:
		return brief
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
	results [len(planes)][parts][]backtest.Result
	origins map[container]origin
}

// collect replays recordings in all experiments under all presets. For a page, it replays the
// report half under all settings of pageRecipes.
func collect(recordings []string, page bool) (*evidence, error) {
	e := &evidence{}
	for i, p := range planes {
		for half := range partNames {
			recipes := compared(p.kind)
			if page && half == report {
				recipes = studied(p.kind)
			}
			if err := e.replay(i, half, recipes, recordings); err != nil {
				return nil, err
			}
		}
	}
	e.trace()
	return e, nil
}

func (e *evidence) replay(plane, half int, recipes, recordings []string) error {
	p := planes[plane]
	c := command.Default()
	c.Baselines, c.Part, c.Kinds, c.Recipes = false, partNames[half], []string{p.kind.String()}, recipes
	c.CPULimit, c.MemoryLimit = p.limit, p.limit
	results, err := command.Replay(context.Background(), c, recordings...)
	e.results[plane][half] = append(e.results[plane][half], results...)
	return err
}

func (e *evidence) trace() {
	e.origins = map[container]origin{}
	hasMemory := map[container]bool{}
	for _, r := range e.all(memoryLimited) {
		hasMemory[containerOf(&r)] = true
	}
	for i := range planes {
		for _, r := range e.all(i) {
			at := containerOf(&r)
			e.origins[at] = originOf(&r, hasMemory[at])
		}
	}
}

// all returns the results of both halves under presets. Only the report half has other recipes.
func (e *evidence) all(plane int) []backtest.Result {
	names := compared(planes[plane].kind)
	return where(slices.Concat(e.results[plane][tune], e.results[plane][report]), func(r *backtest.Result) bool {
		return slices.Contains(names, r.Candidate)
	})
}

func (e *evidence) of(results []backtest.Result, o origin) []backtest.Result {
	return where(results, func(r *backtest.Result) bool { return e.origins[containerOf(r)] == o })
}

// byLength returns the results of long recordings, or of the recordings that are too short for a
// day of warm-up.
func lasting(results []backtest.Result, long bool) []backtest.Result {
	return where(results, func(r *backtest.Result) bool { return r.Short != long })
}

func under(results []backtest.Result, candidate string) []backtest.Result {
	return where(results, func(r *backtest.Result) bool { return r.Candidate == candidate })
}

func where(results []backtest.Result, keep func(*backtest.Result) bool) (some []backtest.Result) {
	for i := range results {
		if keep(&results[i]) {
			some = append(some, results[i])
		}
	}
	return some
}
