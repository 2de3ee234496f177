package backtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/source/trace"
)

// outcome is what a run found.
type outcome struct {
	results    []backtest.Result
	problems   []*trace.Problem
	containers int
	samples    int64 // of all resources of all containers
}

// failed counts the problems that left something out.
func (o *outcome) failed() int {
	n := 0
	for _, p := range o.problems {
		if !p.Warning {
			n++
		}
	}
	return n
}

// Replay replays the containers of files, directories and servers as a configuration
// says.
// It fails if anything had to be left out.
func Replay(ctx context.Context, c *Config, args ...string) ([]backtest.Result, error) {
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	from, err := p.shelf.Find(args)
	if err != nil {
		return nil, err
	}
	o, err := replayAll(ctx, p, c, from, func(int, int, int) {})
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, problem := range o.problems {
		if !problem.Warning {
			problems = append(problems, problem)
		}
	}
	return o.results, errors.Join(problems...)
}

// job is one recording, and where its results go.
type job struct {
	number    int
	recording *replay.Recording
}

// progress is told how far a run is: sources begun, of all, and containers done.
type progress func(source, sources, containers int)

// replayAll replays all containers of some sources. Results come in the order of the
// sources, whoever was done first.
func replayAll(ctx context.Context, p plan, c *Config, from []Source, tell progress) (*outcome, error) {
	o := &outcome{}
	jobs := make(chan job)
	type answer struct {
		number  int
		results []backtest.Result
	}
	answers := make(chan answer)
	var workers sync.WaitGroup
	for range c.Workers {
		workers.Go(func() {
			// Candidates of one's own: they remember powers of two, and processors that
			// share a memory wait for each other.
			own, _, err := c.candidates()
			if err != nil {
				own = p.candidates // it cannot be: those were made of the same
			}
			for j := range jobs {
				answers <- answer{j.number, backtest.Run(j.recording, p.options, own...)}
			}
		})
	}
	var sorted [][]backtest.Result
	collected := make(chan struct{})
	begun := 0
	var lock sync.Mutex // of begun
	go func() {
		defer close(collected)
		done := 0
		for a := range answers {
			for len(sorted) <= a.number {
				sorted = append(sorted, nil)
			}
			sorted[a.number] = a.results
			done++
			lock.Lock()
			at := begun
			lock.Unlock()
			tell(at, len(from), done)
		}
	}()
	var err error
	for i, one := range from {
		lock.Lock()
		begun = i + 1
		lock.Unlock()
		if err = o.read(ctx, c.Part, one, jobs); err != nil {
			break
		}
	}
	close(jobs)
	workers.Wait()
	close(answers)
	<-collected
	for _, results := range sorted {
		o.results = append(o.results, results...)
	}
	return o, err
}

// read hands the containers of one source out. One that cannot be used is a problem
// like others; an error is only the end of the context.
func (o *outcome) read(ctx context.Context, part string, from Source, jobs chan<- job) error {
	for r, problem := range from.Read(ctx, nil) {
		if problem != nil {
			o.problems = append(o.problems, problem)
		}
		if r == nil || !belongs(part, r) {
			continue
		}
		select {
		case jobs <- job{o.containers, r}:
		case <-ctx.Done():
			return ctx.Err()
		}
		o.containers++
		o.samples += int64(len(r.At))
	}
	return ctx.Err()
}

// belongs tells whether a container belongs to a part. Recipes are tuned on one
// half and reported on the other.
func belongs(part string, r *replay.Recording) bool {
	if part == "all" {
		return true
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%s", r.Dataset, r.Workload)
	return (h.Sum32()&(1<<7) != 0) == (part == "report")
}
