// Command chooser studies a hypothetical recipe that picks, for each container, the preset with the
// lowest cost on its past.
//
//	go run -C lab ./chooser RECORDINGS
//
// It replays recordings under all presets of CPU and of memory and tunes the constants of the
// chooser on the tuning half. On the report half it prints the savings against the best single
// preset of the tuning half, and against the best preset in hindsight. docs/recipe-design.md
// explains why there is no such recipe.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	command "loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/trace"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chooser:", err)
		os.Exit(1)
	}
}

// floors are low because higher ones hide the differences between presets on small containers.
const floors = "pod-min-cpu=10,pod-min-memory=8"

// experiment is a resource with the presets to choose from. The first preset is vpa.
type experiment struct {
	kind     resources.Kind
	limit    replay.Limit
	presets  []string
	families [][]int // candidates of a chooser in addition to vpa, within its state
	prices   []price
}

func (p *experiment) recipe(preset int) string {
	if preset == 0 {
		return "vpa:" + floors
	}
	return fmt.Sprintf("loadline:%s=%s,%s", p.kind, p.presets[preset], floors)
}

func (p *experiment) candidates() ([]backtest.Candidate, error) {
	var all []backtest.Candidate
	for preset, name := range p.presets {
		made, err := recipe.Parse(p.recipe(preset))
		if err != nil {
			return nil, err
		}
		all = append(all, backtest.Recipe(name, &made, usage.DefaultConfig()))
	}
	return all, nil
}

func experiments() []experiment {
	cpu := experiment{
		kind: resources.CPU, presets: []string{"vpa", "calm-lean", "calm", "calm-safe", "mixed", "tracking-lean", "tracking", "tracking-safe"},
		// The calm presets share their histograms. Each tracking preset has its own.
		families: [][]int{{1, 2, 3, 5}, {1, 2, 3, 6}, {1, 2, 3, 7}},
	}
	for _, change := range []price{{}, {change: 1, perMeanUsage: true}, {change: 1}} {
		for _, missing := range []float64{4, 8, 16, 32} {
			change.starved = missing
			cpu.prices = append(cpu.prices, change)
		}
	}
	all := []experiment{cpu}
	for _, factor := range []float64{1.2, 1} {
		memory := experiment{
			kind: resources.Memory, limit: replay.Limit{Policy: replay.Proportional, Factor: factor},
			presets: []string{"vpa", "lean", "equal", "default", "safe"}, families: [][]int{{1, 2, 3, 4}},
		}
		for _, kill := range []float64{100, 300, 1000, 3000} {
			memory.prices = append(memory.prices, price{kill: kill, perMeanUsage: true})
		}
		all = append(all, memory)
	}
	return all
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want recordings: files or directories")
	}
	for _, p := range experiments() {
		all, err := replayAll(args, &p)
		if err != nil {
			return err
		}
		for _, short := range []bool{false, true} {
			p.report(all, short, out)
		}
	}
	return nil
}

func replayAll(args []string, p *experiment) ([]*container, error) {
	sources := command.Sources{Files: trace.Options{MinMemory: 1 << 20}}
	from, err := sources.Find(args)
	if err != nil {
		return nil, err
	}
	var all []*container
	var workers sync.WaitGroup
	semaphore := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, source := range from {
		for r, problem := range source.Read(context.Background(), nil) {
			if problem != nil && !problem.Warning {
				return nil, problem
			}
			if r == nil || !r.Has(p.kind) {
				continue
			}
			made, err := p.candidates() // not shared: their decay caches powers of two
			if err != nil {
				return nil, err
			}
			c := newContainer(r, p)
			all = append(all, c)
			semaphore <- struct{}{}
			workers.Go(func() {
				c.replay(r, p, made)
				<-semaphore
			})
		}
	}
	workers.Wait()
	return all, nil
}

// report prints a table about the long recordings, or about the recordings that are too short for a
// day of warm-up.
func (p *experiment) report(all []*container, short bool, out io.Writer) {
	var tuned, reported []*container
	for _, c := range all {
		switch {
		case c.short != short:
		case c.inTuningHalf:
			tuned = append(tuned, c)
		default:
			reported = append(reported, c)
		}
	}
	if len(tuned) == 0 || len(reported) == 0 {
		return
	}
	name := p.kind.String()
	if p.kind == resources.Memory {
		name += fmt.Sprintf(", limit %g x request", p.limit.Factor)
	}
	length, halfLives := "long", []float64{24, 72, 168, 336}
	if short {
		length, halfLives = "short", []float64{1, 3, 6, 12}
	}
	fmt.Fprintf(out, "\n%s, %s recordings: chosen on %d containers, reported on %d\n\n", name, length, len(tuned), len(reported))
	fmt.Fprintln(out, "| price | weighed | best preset | chooser, % less [95 %] | than the best with hindsight | each container its best | half-life, margin |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, price := range p.prices {
		for _, mean := range []bool{true, false} {
			s := study{experiment: p, price: price, byContainer: mean, tuned: tuned, reported: reported, halfLives: halfLives}
			fmt.Fprintln(out, s.row())
		}
	}
}

// hour is the interval between two choices.
const hour = int64(time.Hour)

func cells(of ...string) string { return "| " + strings.Join(of, " | ") + " |" }
