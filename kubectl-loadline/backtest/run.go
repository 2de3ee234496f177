package backtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/nodes"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/source/trace"
)

// outcome is what a run found.
type outcome struct {
	results    []backtest.Result
	problems   []*trace.Problem
	containers int
	courses    [][]*nodes.Course // by container and recipe, for the nodes; nil of one that is too short
}

// failed returns the problems that left something out.
func (o *outcome) failed() (problems []error) {
	for _, p := range o.problems {
		if !p.Warning {
			problems = append(problems, p)
		}
	}
	return problems
}

var errNothing = errors.New("nothing could be replayed")

// complete returns an error if anything was left out.
func (o *outcome) complete() error {
	if o.containers == 0 {
		return errNothing
	}
	if n := len(o.failed()); n > 0 {
		return fmt.Errorf("%d problems left containers out; the result has the %d others", n, o.containers)
	}
	return nil
}

// Replay replays the containers of files, directories and servers as a configuration
// says. It fails if anything had to be left out.
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

// job is one recording, and where its results go.
type job struct {
	source    int // counted from 1
	recording *replay.Recording
	found     *found
}

// found is what came out for one recording.
type found struct {
	results []backtest.Result
	courses []*nodes.Course
}

// replayAll replays all containers of some sources. Results come in the order of the
// sources, whoever was done first. It reports how far it is: sources begun, of all, and containers done.
func replayAll(ctx context.Context, p plan, c *Config, from []Source, report func(source, sources, containers int)) (*outcome, error) {
	o := &outcome{}
	jobs := make(chan job)
	var workers sync.WaitGroup
	var lock sync.Mutex
	done := 0
	for range c.Workers {
		workers.Go(func() {
			// Candidates of one's own: they remember powers of two, and processors that
			// share a memory wait for each other.
			own, _, err := c.candidates()
			if err != nil {
				own = p.candidates // it cannot be: those were made of the same
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
	var sorted []*found
	for i, one := range from {
		if err = o.read(ctx, c.Part, one, func(r *replay.Recording) error {
			result := &found{}
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

// read hands the containers of one source out. One that cannot be used is a problem
// like others; an error is only the end of the context, or that of take.
func (o *outcome) read(ctx context.Context, part string, from Source, take func(*replay.Recording) error) error {
	for r, problem := range from.Read(ctx, nil) {
		if problem != nil {
			o.problems = append(o.problems, problem)
		}
		if r == nil || !belongs(part, r) {
			continue
		}
		if err := take(r); err != nil {
			return err
		}
		o.containers++
	}
	return ctx.Err()
}

// belongs reports whether a container belongs to a part. Recipes are tuned on one
// half and reported on the other.
func belongs(part string, r *replay.Recording) bool {
	if part == "all" {
		return true
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, r.Dataset+"/"+r.Workload)
	return (h.Sum32()&(1<<7) != 0) == (part == "report")
}
