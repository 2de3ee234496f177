package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestOriginOf_ClassifiesRecordings(t *testing.T) {
	recorded := func(days float64, step time.Duration) *backtest.Result {
		return &backtest.Result{Step: step, Cold: backtest.Tally{Days: days / 4}, Scored: backtest.Tally{Days: days * 3 / 4}}
	}
	require.Equal(t, machines, originOf(recorded(30, 5*time.Minute), true))
	require.Equal(t, byMinute, originOf(recorded(1, time.Minute), true))
	require.Equal(t, shortPods, originOf(recorded(0.9, time.Minute), true))
	require.Equal(t, shortPods, originOf(recorded(0.9, 15*time.Minute), true))
	require.Equal(t, cpuOnly, originOf(recorded(0.9, time.Minute), false))
	require.Equal(t, cpuOnly, originOf(recorded(30, 5*time.Minute), false))
}

// newResult returns a result of a container over one hour of a day: request and usage in cores,
// starved as a share of the usage.
func newResult(candidate, name string, request, used, starved float64, changes int) backtest.Result {
	const hour = 3600
	return backtest.Result{Dataset: "d", Workload: name, Container: name, Candidate: candidate, Kind: resources.CPU, Scored: backtest.Tally{
		Days: 1, Dates: 1, Seconds: hour, Reserved: 1000 * request * hour, Over: 1000 * (request - used*(1-starved)) * hour,
		Used: 1000 * used * hour, StarvedWork: 1000 * used * starved * hour, Changes: changes,
	}}
}

func TestFleetRow_AggregatesFigures(t *testing.T) {
	f := newFleet([]backtest.Result{newResult("a", "small", 1, 0.5, 0.1, 2), newResult("a", "large", 10, 8, 0, 0), newResult("a", "middle", 2, 1, 0, 1)})
	r := f.row("a", resources.CPU)
	require.Equal(t, 3, r.Containers)
	require.InDeltaMapValues(t, map[string]float64{
		"unused core-hours": 0.55 + 2 + 1, "slack, mean": (0.55 + 0.2 + 0.5) / 3,
		"starved core-hours": 0.05, "starved work, mean": 0.1 / 3, "changes a day": 1,
		"unused cores, worst container": 2, "starved work, worst container": 0.1,
	}, r.Figures, 1e-9)
	require.Equal(t, map[string]string{"unused cores, worst container": "large", "starved work, worst container": "small"}, r.Worst)

	killed := func(name string, days, dates, kills int, request float64) backtest.Result {
		return backtest.Result{Workload: name, Container: name, Candidate: "a", Kind: resources.Memory, Scored: backtest.Tally{
			Days: float64(dates), Dates: dates, Seconds: 3600, Reserved: request * 3600 * (1 << 30), Over: request / 2 * 3600 * (1 << 30), Used: 1,
			Kills: kills, KillDays: days, Starved: 36, Changes: 4,
		}}
	}
	r = newFleet([]backtest.Result{killed("often", 2, 4, 6, 1), killed("never", 0, 4, 0, 3)}).row("a", resources.Memory)
	require.InDeltaMapValues(t, map[string]float64{
		"unused GiB-hours": 2, "slack, mean": 0.5, "OOM kills": 6, "OOM days, mean": 0.25, "time above request": 0.01,
		"changes a day": 1, "unused GiB, worst container": 1.5, "OOM days, worst container": 2,
	}, r.Figures, 1e-9)
	require.Equal(t, map[string]string{"unused GiB, worst container": "never", "OOM days, worst container": "often"}, r.Worst)
}

// recordedPods returns evidence with a pod, for which the reference recipe leaves 1.1 core-hours
// unused and starves 0.1, and a machine, which must not count.
func recordedPods(dataset string, unused, starved float64) *evidence {
	e := &evidence{origins: map[container]origin{}}
	add := func(recipe, name string, o origin, request, starved float64) {
		r := newResult(recipe, name, request, 1, starved, 1)
		r.Dataset = dataset
		e.origins[containerOf(&r)] = o
		e.results[cpuUnlimited][tune] = append(e.results[cpuUnlimited][tune], r)
	}
	add(upstreamDefault, "pod", shortPods, 2, 0.1)
	add(loadlineDefault, "pod", shortPods, unused+1-starved, starved)
	add(upstreamDefault, "machine", machines, 2, 0)
	add(loadlineDefault, "machine", machines, 20, 1) // not a pod
	return e
}

// Independent of committed results, loadline must not cost more on pods than the reference recipe.
func TestPodsWorse_LimitsCostToUpstream(t *testing.T) {
	require.Empty(t, recordedPods("shop", 1.1, 0.12).podViolations("s"))
	require.Equal(t, []string{"s, pods of shop: loadline: unused core-hours: 1.2, of vpa 1.1: must not be more"}, recordedPods("shop", 1.2, 0.1).podViolations("s"))
	require.Equal(t, []string{"s, all pods: loadline: starved core-hours: 0.13, of vpa 0.1: must not be more than 1.2 times that"}, recordedPods("shop", 1, 0.13).podViolations("s"))
	both := recordedPods("shop", 1.2, 0.1)
	other := recordedPods("office", 0.5, 0.1)
	both.results[cpuUnlimited][report] = other.results[cpuUnlimited][tune]
	for c, o := range other.origins {
		both.origins[c] = o
	}
	require.Len(t, both.podViolations("s"), 1, "less on another recording does not make up for it")
	require.Contains(t, both.podTable(), "| recipe | office | | shop | | all | |\n")
	require.Contains(t, both.podTable(), "| `loadline` | 0.5 | 0.1 | 1.2 | 0.1 | 1.7 | 0.2 |\n")
}

func TestFleetChoose_PicksCheapestPreset(t *testing.T) {
	by := map[string][4]float64{ // requests and starved shares of a small and a large container
		"vpa": {2, 0.1, 20, 0.1}, "loadline": {1.5, 0.1, 30, 0.1}, "loadline:cpu=calm-lean": {1.2, 0.3, 11, 0.3},
		"loadline:cpu=tracking": {1.3, 0.05, 15, 0.05},
	}
	var results []backtest.Result
	for _, name := range presetRecipes(resources.CPU) {
		is, known := by[shortName(name)]
		if !known {
			is = [4]float64{9, 0, 90, 0}
		}
		moves := 2
		if strings.Contains(name, "tracking") {
			moves = 5
		}
		results = append(results, newResult(name, "small", is[0], 1, is[1], moves), newResult(name, "large", is[2], 10, is[3], moves))
	}
	f := newFleet(results)
	mean, fleet := views[0], views[1]
	require.Equal(t, tracking, f.choosePreset(resources.CPU, mean, false), "lean costs less, but starves more")
	require.Equal(t, tracking, f.choosePreset(resources.CPU, fleet, false))
	require.Equal(t, upstreamDefault, f.choosePreset(resources.CPU, fleet, true), "5 changes are more than twice 2; loadline costs more in the sum")
	require.Equal(t, loadlineDefault, newFleet(filterResults(results, func(r *backtest.Result) bool { return r.Workload == "small" })).choosePreset(resources.CPU, mean, true))
	require.Contains(t, f.outcomeCells(resources.CPU, mean, tracking), "` | -")
	require.Contains(t, f.outcomeCells(resources.CPU, mean, tracking), "| holds |")
	require.Contains(t, f.outcomeCells(resources.CPU, mean, withFloors("loadline:cpu=calm-lean")), "| **more risk** |")
	require.Contains(t, f.outcomeCells(resources.CPU, fleet, withFloors("crane")), "| **costs no less** |")
	require.Equal(t, " `vpa` | | | | |", f.outcomeCells(resources.CPU, mean, upstreamDefault))
}

func TestFleetOutcome_ReportsChance(t *testing.T) {
	verdict := func(a, b [2]float64) string {
		return newFleet([]backtest.Result{
			newResult(upstreamDefault, "a", 2, 1, 0.1, 1), newResult(upstreamDefault, "b", 2, 1, 0.1, 1), newResult(loadlineDefault, "a", a[0], 1, a[1], 1), newResult(loadlineDefault, "b", b[0], 1, b[1], 1),
		}).outcomeCells(resources.CPU, views[0], loadlineDefault)
	}
	require.Contains(t, verdict([2]float64{1.2, 0.1}, [2]float64{1.3, 0.05}), "| holds |")
	require.Contains(t, verdict([2]float64{1, 0.1}, [2]float64{2.2, 0.1}), "| saving within chance |")
	require.Contains(t, verdict([2]float64{1.2, 0.2}, [2]float64{1.3, 0.05}), "| risk within chance |")
}

// Uses the pages of the tree. Two runs must give the same bytes.
func TestRun_FillsPagesReproducibly(t *testing.T) {
	directory := t.TempDir()
	copied := func(from, to string) string {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(directory, to), text, 0o600))
		return filepath.Join(directory, to)
	}
	page, overview := copied("../docs/quality.md", "quality.md"), copied("../../README.md", "README.md")
	recordings := filepath.Join(directory, "recordings")
	require.NoError(t, os.Mkdir(recordings, 0o700))
	require.NoError(t, writeSlowed(sample, recordings))
	filled := func() string {
		var out, errOut bytes.Buffer
		args := []string{"-sample", sample, "-results", directory, "-update", "-traces", recordings, "-page", page, "-overview", overview}
		require.Zero(t, run(args, &out, &errOut), errOut.String())
		var all []byte
		for _, name := range []string{page, overview} {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			all = append(all, text...)
		}
		return string(all)
	}
	once := filled()
	require.Equal(t, once, filled())
	for _, want := range []string{"| short pods | CPU and memory, less than a day | ", "| recipe | sample | | all | |\n", "### CPU, no limit: short pods", "### Memory, limit 5 x request: short pods"} {
		require.Contains(t, once, want)
	}
	for _, p := range presets {
		require.Contains(t, once, fmt.Sprintf("| `%s` | ", p.recipe))
	}
}
