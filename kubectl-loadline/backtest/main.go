// Package backtest implements kubectl loadline backtest, which replays recorded usage under recipes
// and reports the cost and risk of each. Package core/backtest replays and scores.
package backtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/nodes"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/printable"
	"loadline.dev/loadline/pkg/source/trace"
)

const name = "kubectl loadline backtest"

// Run returns the exit code, 1 if a container or a file was skipped. The result has the others.
func Run(ctx context.Context, config *Config, args []string, out, errOut io.Writer) int {
	plan, err := config.plan()
	if len(args) == 0 {
		err = errors.Join(err, errors.New("missing recordings: name files or directories of .csv or .csv.gz, or Prometheus addresses"))
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			printable.Fprintf(errOut, "%s: %s\n", name, strings.TrimSpace(line))
		}
		return flags.ExitUsage
	}
	if err := run(ctx, config, plan, args, out, errOut); err != nil {
		printable.Fprintf(errOut, "%s: %v\n", name, err)
		return flags.ExitFailed
	}
	return flags.ExitOK
}

func run(ctx context.Context, c *Config, p plan, args []string, out, errOut io.Writer) error {
	from, err := p.sources.Find(args)
	if err != nil {
		return err
	}
	if c.Output == "events" {
		return c.writeTo(out, func(out io.Writer) error { return c.events(ctx, p, from, out, errOut) })
	}
	bar := newBar(errOut, c.Quiet)
	o, err := replayAll(ctx, p, c, from, bar.show)
	bar.clear()
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	c.report(errOut, o.problems)
	if len(o.results) == 0 {
		return errNothing
	}
	d := &Report{Results: o.results}
	if c.Output != "csv" {
		d = NewReport(o.results, c.describe(p), c.base(p))
	}
	if p.nodes != nil {
		if d.Nodes, err = compareNodes(ctx, p.nodes, c.Workers, o.courses); err != nil {
			return fmt.Errorf("compare on nodes: %w", err)
		}
	}
	charts, err := c.charts(ctx, p, from, d)
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	if err := c.writeTo(out, func(out io.Writer) error { return c.write(out, d, charts) }); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return o.complete()
}

func (c *Config) report(errOut io.Writer, problems []*trace.Problem) {
	for _, problem := range problems {
		if !problem.Warning || !c.Quiet {
			printable.Fprintln(errOut, problem)
		}
	}
}

// base returns the candidate that others are compared with.
func (c *Config) base(p plan) string {
	if len(c.Recipes) > 0 {
		return c.Recipes[0]
	}
	return p.candidates[0].Name
}

func (c *Config) writeTo(out io.Writer, write func(io.Writer) error) (err error) {
	if c.File == "" {
		return write(out)
	}
	file, err := os.Create(c.File)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}

func (c *Config) write(out io.Writer, d *Report, charts []Chart) error {
	switch c.Output {
	case "json":
		return d.JSON(out)
	case "csv":
		return d.CSV(out)
	case "html":
		return d.HTML(out, charts)
	}
	return d.Table(out, c.Classes)
}

func (c *Config) describe(p plan) []Setting {
	s := p.setup[resources.CPU]
	first := func(q flags.Quantity) string {
		if q.IsSet {
			return q.String()
		}
		return fmt.Sprintf("recorded request, else limit, else %g x maximum of the first hour", s.Guess)
	}
	all := []Setting{
		{Name: "part", Value: c.Part},
		{Name: "first cpu request", Value: first(c.FirstCPU)},
		{Name: "first memory request", Value: first(c.FirstMemory)},
		{Name: "cpu limit", Value: s.Limits[resources.CPU].String()},
		{Name: "memory limit", Value: s.Limits[resources.Memory].String()},
		{Name: "work above the cpu limit", Value: map[bool]string{true: "carried", false: "dropped"}[c.Carry]},
		{Name: "changes", Value: fmt.Sprintf("%s; outside of the bounds at once, within them %v after the last %s and from %g on", c.Mode,
			s.Update.Planner.Lifetime, c.LifetimeFrom, s.Update.Planner.Threshold)},
		{Name: "raised after a kill", Value: fmt.Sprint(s.Update.AfterKill)},
		{Name: "restart", Value: fmt.Sprintf("%v and a back-off of %v, doubling to %v", s.Restart, s.Backoff, s.MaxBackoff)},
		{Name: "warm-up", Value: fmt.Sprintf("%v, or a quarter of a short recording", c.WarmUp)},
		{Name: "least memory sample", Value: c.MinMemory.String()},
	}
	if p.nodes != nil {
		all = append(all, c.Nodes.describe()...)
	}
	return all
}

type progressBar struct {
	out   io.Writer // nil: no terminal
	shown time.Time
}

func newBar(out io.Writer, quiet bool) *progressBar {
	if file, ok := out.(*os.File); ok && !quiet {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return &progressBar{out: out}
		}
	}
	return &progressBar{}
}

func (b *progressBar) show(source, sources, containers int) {
	if b.out != nil && time.Since(b.shown) > 200*time.Millisecond {
		b.shown = time.Now()
		printable.Fprintf(b.out, "\r\x1b[Kreplayed %d containers, source %d of %d", containers, source, sources)
	}
}

func (b *progressBar) clear() {
	if b.out != nil {
		printable.Fprintf(b.out, "\r\x1b[K")
	}
}

type runResult struct {
	results    []backtest.Result
	problems   []*trace.Problem
	containers int
	courses    [][]*nodes.Trace // by container and recipe, nil: too short
}

func (o *runResult) failed() (problems []error) {
	for _, p := range o.problems {
		if !p.Warning {
			problems = append(problems, p)
		}
	}
	return problems
}

var errNothing = errors.New("nothing could be replayed")

func (o *runResult) complete() error {
	if o.containers == 0 {
		return errNothing
	}
	if n := len(o.failed()); n > 0 {
		return fmt.Errorf("%d problems left containers out; the result has the %d others", n, o.containers)
	}
	return nil
}

// Replay replays containers of files, directories and servers. It fails if anything was skipped.
func Replay(ctx context.Context, c *Config, args ...string) ([]backtest.Result, error) {
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	from, err := p.sources.Find(args)
	if err != nil {
		return nil, err
	}
	o, err := replayAll(ctx, p, c, from, func(int, int, int) {})
	if err != nil {
		return nil, err
	}
	return o.results, errors.Join(o.failed()...)
}

type job struct {
	source    int // counted from 1
	recording *replay.Recording
	found     *recordingResult
}

type recordingResult struct {
	results []backtest.Result
	courses []*nodes.Trace
}

// replayAll returns results in the order of the sources and reports the progress.
func replayAll(ctx context.Context, p plan, c *Config, from []Source, report func(source, sources, containers int)) (*runResult, error) {
	o := &runResult{}
	jobs := make(chan job)
	var workers sync.WaitGroup
	var lock sync.Mutex
	done := 0
	for range c.Workers {
		workers.Go(func() {
			// CPUs that share a recipe's cache of powers of two wait for each other.
			own, _, err := c.candidates()
			if err != nil {
				own = p.candidates // unreachable: parsed before
			}
			var methods []nodes.Method
			if p.nodes != nil {
				methods = p.nodes.methods()
			}
			for j := range jobs {
				j.found.results = backtest.Run(j.recording, p.options, own...)
				if p.nodes != nil {
					j.found.courses = nodes.Play(j.recording, p.nodes.playing, methods)
				}
				lock.Lock()
				done++
				report(j.source, len(from), done)
				lock.Unlock()
			}
		})
	}
	var err error
	var sorted []*recordingResult
	for i, one := range from {
		if err = o.read(ctx, c.Part, one, func(r *replay.Recording) error {
			result := &recordingResult{}
			select {
			case jobs <- job{i + 1, r, result}:
				sorted = append(sorted, result)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}); err != nil {
			break
		}
	}
	close(jobs)
	workers.Wait()
	for _, one := range sorted {
		o.results = append(o.results, one.results...)
		if p.nodes != nil {
			o.courses = append(o.courses, one.courses)
		}
	}
	return o, err
}

// read passes the containers of a source to take. The error is of take, or the end of ctx.
func (o *runResult) read(ctx context.Context, part string, from Source, take func(*replay.Recording) error) error {
	for r, problem := range from.Read(ctx, nil) {
		if problem != nil {
			o.problems = append(o.problems, problem)
		}
		if r == nil || !inPart(part, r) {
			continue
		}
		if err := take(r); err != nil {
			return err
		}
		o.containers++
	}
	return ctx.Err()
}

// inPart reports whether a container belongs to a part: one half for tuning, one for reports.
func inPart(part string, r *replay.Recording) bool {
	if part == "all" {
		return true
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, r.Dataset+"/"+r.Workload)
	return (h.Sum32()&(1<<7) != 0) == (part == "report")
}
