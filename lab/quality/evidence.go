package main

import (
	"context"
	"slices"
	"time"

	command "loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// plane is a way in which a resource is replayed: recordings are scored in it by what is
// reserved and by what was missing.
type plane struct {
	name  string
	kind  resources.Kind
	limit string // as the backtester takes it
}

// Which plane is which.
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

// origin is what a recording is of, told by what is recorded.
type origin string

const (
	machines origin = "machines"           // CPU and memory for a day or longer, in steps of more than a minute
	byMinute origin = "pods by the minute" // the same in steps of a minute or less
	brief    origin = "short pods"         // CPU and memory for less than a day
	cpuAlone origin = "CPU alone"          // no memory
)

// origins lists all origins in the order of tables.
var origins = []origin{machines, byMinute, brief, cpuAlone}

// told says by what an origin is told.
var told = map[origin]string{
	machines: "CPU and memory, a day or longer, steps of more than a minute",
	byMinute: "CPU and memory, a day or longer, steps of a minute or less",
	brief:    "CPU and memory, less than a day",
	cpuAlone: "no memory",
}

// isPods reports whether recordings of an origin are of pods.
func (o origin) isPods() bool { return o == byMinute || o == brief }

// originOf tells the origin of a recording by a result of it.
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

// container names a recording of one container.
type container struct{ dataset, workload, name string }

func containerOf(r *backtest.Result) container { return container{r.Dataset, r.Workload, r.Container} }

// The halves of the recordings: recipes are chosen on one and reported on the other.
const (
	tune = iota
	report
	parts
)

var partNames = [parts]string{tune: "tune", report: "report"}

// evidence is what recordings led to in all planes.
type evidence struct {
	results [len(planes)][parts][]backtest.Result
	origins map[container]origin
}

// collect replays recordings in all planes under all presets. If a page is wanted, it
// replays the half that is reported under all settings of a study.
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

// replay adds what a half of some recordings comes to in a plane under some recipes.
func (e *evidence) replay(plane, half int, recipes, recordings []string) error {
	p := planes[plane]
	c := command.Default()
	c.Baselines, c.Part, c.Kinds, c.Recipes = false, partNames[half], []string{p.kind.String()}, recipes
	c.CPULimit, c.MemoryLimit = p.limit, p.limit
	results, err := command.Replay(context.Background(), c, recordings...)
	e.results[plane][half] = append(e.results[plane][half], results...)
	return err
}

// trace finds the origin of each recording.
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

// all returns the results of both halves in a plane, under presets only: both were replayed
// under them.
func (e *evidence) all(plane int) []backtest.Result {
	names := compared(planes[plane].kind)
	return where(slices.Concat(e.results[plane][tune], e.results[plane][report]), func(r *backtest.Result) bool {
		return slices.Contains(names, r.Candidate)
	})
}

// of returns those of some results that have an origin.
func (e *evidence) of(results []backtest.Result, o origin) []backtest.Result {
	return where(results, func(r *backtest.Result) bool { return e.origins[containerOf(r)] == o })
}

// lasting returns the results of long recordings, or of those that are too short for
// a day of warm-up.
func lasting(results []backtest.Result, long bool) []backtest.Result {
	return where(results, func(r *backtest.Result) bool { return r.Short != long })
}

// under returns the results of one candidate.
func under(results []backtest.Result, candidate string) []backtest.Result {
	return where(results, func(r *backtest.Result) bool { return r.Candidate == candidate })
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
