// Command quality is the regression gate of recommendations: it replays recorded
// usage under our recipes and compares what that cost with the committed result.
//
//	go run ./hack/quality                      the recordings of testdata/traces
//	go run ./hack/quality -traces DIRECTORY    those of a directory, too
//	go run ./hack/quality -update              write the results anew
//	go run ./hack/quality -traces DIRECTORY -study report
//	                                           compare recipes with the best settings of the reference
//
// The recordings of testdata/traces last for minutes, a sample a second. They are
// played sixty times as slowly, a sample a minute, so that they last for hours: the
// shapes are real, the speed is not. A result is worse if its cost or a part of it
// grew by more than 2 %, or if there are more kills than chance explains.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	command "loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/source/trace"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("quality", flag.ContinueOnError)
	flags.SetOutput(stderr)
	sample := flags.String("sample", "testdata/traces", "directory of the recordings that are always replayed")
	traces := flags.String("traces", "", "directory of more recordings; left out if it does not exist")
	results := flags.String("results", "hack/quality", "directory of the committed results")
	update := flags.Bool("update", false, "write the results instead of comparing with them")
	study := flags.String("study", "", "half of the traces on which recipes are compared with the best settings of the reference at equal risk: report, tune or all; in place of the gate")
	if flags.Parse(args) != nil || flags.NArg() > 0 {
		return 2
	}
	if *study != "" {
		files, err := containers(*traces)
		if err == nil {
			err = planes(files, *study, stdout)
		}
		if err != nil {
			fmt.Fprintln(stderr, "quality:", err)
			return 1
		}
		return 0
	}
	worse, err := gate(*sample, *traces, *results, *update, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "quality:", err)
		return 1
	}
	for _, reason := range worse {
		fmt.Fprintln(stderr, "quality: worse:", reason)
	}
	if len(worse) > 0 {
		fmt.Fprintln(stderr, "quality: if this is meant, run: go run ./hack/quality -update")
		return 1
	}
	return 0
}

// gate replays the recordings and returns what got worse.
func gate(sample, traces, results string, update bool, out io.Writer) ([]string, error) {
	slow, err := os.MkdirTemp("", "quality")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(slow) //nolint:errcheck // it is temporary
	if err := stretch(sample, slow); err != nil {
		return nil, fmt.Errorf("recordings of %s: %w", sample, err)
	}
	worse, err := compare("sample", []string{slow}, results, update, out)
	if err != nil || traces == "" {
		return worse, err
	}
	if _, err := os.Stat(traces); err != nil {
		fmt.Fprintf(out, "%s is not there: only the sample was replayed\n", traces)
		return worse, nil
	}
	files, err := containers(traces)
	if err != nil {
		return nil, err
	}
	more, err := compare("traces", files, results, update, out)
	return append(worse, more...), err
}

// containers lists the recordings of a directory without those that are totals of
// whole pools: hundreds of cores would hide all containers, and their memory is
// more than the histogram of the reference can hold.
func containers(directory string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.csv.gz"))
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasPrefix(filepath.Base(name), "cluster-pools") })
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s: there are no .csv.gz files", directory))
	}
	return files, nil
}

// slowness is how many seconds one second of a recording becomes.
const slowness = 60

// stretch writes the recordings of a directory in the layout of the backtester.
func stretch(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.csv.gz"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, errors.New("there are no .csv.gz files"))
	}
	for _, name := range files {
		if err := stretchFile(name, filepath.Join(to, filepath.Base(name))); err != nil {
			return err
		}
	}
	return nil
}

func stretchFile(from, to string) error {
	samples, err := trace.ReadProcess(from)
	if err != nil {
		return err
	}
	const begin = 1767225600 // the first of January 2026, in seconds since 1970
	name := strings.TrimSuffix(filepath.Base(from), ".csv.gz")
	var content bytes.Buffer
	packed := gzip.NewWriter(&content)
	fmt.Fprintln(packed, "workload,container,timestamp,cpu_cores,memory_bytes")
	for _, s := range samples {
		fmt.Fprintf(packed, "%s,%s,%.0f,%v,%v\n", name, name, begin+s.At*slowness, s.CPU, s.Memory)
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, content.Bytes(), 0o600)
}

// configuration is one way to replay. Its name is the key of its result.
type configuration struct {
	name   string
	change func(*command.Config)
}

// Floors would hide the recipes: a small container costs the same with all.
const floors = "pod-min-cpu=10,pod-min-memory=8"

var recipes = []string{"vpa", "vpa:" + floors, "loadline:" + floors, "loadline:cpu=tracking,memory=safe," + floors}

var configurations = []configuration{
	{"memory limit 1.2 x request, no cpu limit", func(*command.Config) {}},
	{"limits equal to requests", func(c *command.Config) { c.MemoryLimit, c.CPULimit = "1", "1" }},
}

// compare replays recordings and compares the costs with the
// committed ones of a set, or writes them.
func compare(set string, recordings []string, results string, update bool, out io.Writer) ([]string, error) {
	found := map[string][]backtest.Cost{}
	for _, configuration := range configurations {
		c := command.Default()
		c.Recipes, c.Baselines = recipes, false
		configuration.change(c)
		scores, err := command.Replay(context.Background(), c, recordings...)
		if err != nil {
			return nil, err
		}
		for _, recipe := range recipes {
			cost := backtest.CostOf(scores, recipe)
			found[configuration.name] = append(found[configuration.name], cost)
			fmt.Fprintf(out, "%s, %s, %s: cost %.6g = %.6g core-hours + %g x %.6g GiB-hours + %d x %d kills + %d x %d evictions + %d x %.6g starved core-hours\n",
				set, configuration.name, recipe, cost.Total, cost.CoreHours, backtest.GiBHour, cost.GiBHours, backtest.KillPrice, cost.Kills,
				backtest.EvictionPrice, cost.Evictions, backtest.StarvedCoreHour, cost.StarvedCoreHours)
		}
	}
	file := filepath.Join(results, set+".json")
	if update {
		content, err := json.MarshalIndent(found, "", " ")
		if err != nil {
			return nil, err
		}
		return nil, os.WriteFile(file, append(content, '\n'), 0o644)
	}
	return against(file, found)
}

// against compares with a committed result.
func against(file string, found map[string][]backtest.Cost) ([]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("committed result: %w", err)
	}
	var committed map[string][]backtest.Cost
	if err := json.Unmarshal(content, &committed); err != nil {
		return nil, fmt.Errorf("committed result %s: %w", file, err)
	}
	var worse []string
	for _, configuration := range configurations {
		was := map[string]backtest.Cost{}
		for _, cost := range committed[configuration.name] {
			was[cost.Candidate] = cost
		}
		for _, is := range found[configuration.name] {
			before, known := was[is.Candidate]
			if !known {
				return nil, fmt.Errorf("committed result %s: has no %q under %q: run with -update", file, is.Candidate, configuration.name)
			}
			for _, reason := range worsened(before, is) {
				worse = append(worse, configuration.name+": "+reason)
			}
		}
	}
	return worse, nil
}

// grownMost is the growth of a cost that is let pass.
const grownMost = 0.02

// worsened returns why a cost is worse than it was, nothing if it is not: a growth of
// the total or of a part by more than 2 %, or more kills than chance explains.
func worsened(was, is backtest.Cost) []string {
	var reasons []string
	grown := func(name string, before, now float64) {
		if now > before*(1+grownMost)+1e-9 {
			reasons = append(reasons, fmt.Sprintf("%s: %s: %.6g, was %.6g: more than 2 %% worse", is.Candidate, name, now, before))
		}
	}
	grown("total cost", was.Total, is.Total)
	grown("unused core-hours", was.CoreHours, is.CoreHours)
	grown("unused GiB-hours", was.GiBHours, is.GiBHours)
	grown("starved core-hours", was.StarvedCoreHours, is.StarvedCoreHours)
	grown("evictions", float64(was.Evictions), float64(is.Evictions))
	if most := float64(was.Kills) + 2*math.Sqrt(float64(was.Kills)); float64(is.Kills) > most {
		reasons = append(reasons, fmt.Sprintf("%s: kills for want of memory: %d, were %d: more than chance explains", is.Candidate, is.Kills, was.Kills))
	}
	return reasons
}
