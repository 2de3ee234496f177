package proof

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/backtest/score"
	"loadline.dev/loadline/pkg/core/backtest/tape"
	"loadline.dev/loadline/pkg/source/trace"
)

// outcome is what a run found.
type outcome struct {
	results    []score.Result
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

// Replay replays the containers of files and directories as a configuration says.
// It fails if anything had to be left out.
func Replay(ctx context.Context, c *Config, args ...string) ([]score.Result, error) {
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	files, err := sources(args)
	if err != nil {
		return nil, err
	}
	o, err := replayAll(ctx, p, c, files, func(int, int, int) {})
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
	recording *tape.Recording
}

// progress is told how far a run is: files begun, of all, and containers done.
type progress func(file, files, containers int)

// replayAll replays all containers of some files. Results come in the order of the
// files, whoever was done first.
func replayAll(ctx context.Context, p plan, c *Config, files []string, tell progress) (*outcome, error) {
	o := &outcome{}
	jobs := make(chan job)
	type answer struct {
		number  int
		results []score.Result
	}
	answers := make(chan answer)
	var workers sync.WaitGroup
	for range c.Workers {
		workers.Go(func() {
			for j := range jobs {
				answers <- answer{j.number, backtest.Run(j.recording, p.options, p.candidates...)}
			}
		})
	}
	var sorted [][]score.Result
	collected := make(chan struct{})
	file := 0
	var lock sync.Mutex // of file
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
			at := file
			lock.Unlock()
			tell(at, len(files), done)
		}
	}()
	var err error
	for i, name := range files {
		lock.Lock()
		file = i + 1
		lock.Unlock()
		if err = o.read(ctx, p, c.Part, name, jobs); err != nil {
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

// read hands the containers of one file out. A file that cannot be used is a
// problem like others; an error is only the end of the context.
func (o *outcome) read(ctx context.Context, p plan, part, name string, jobs chan<- job) error {
	file, err := os.Open(name)
	if err != nil {
		o.problems = append(o.problems, &trace.Problem{File: name, Text: fmt.Sprintf("cannot be opened: %v", err)})
		return nil
	}
	defer file.Close() //nolint:errcheck // it was only read
	for r, problem := range trace.Read(file, filepath.Base(name), p.reading) {
		if problem != nil {
			problem.File = name
			o.problems = append(o.problems, problem)
		}
		if r == nil || !within(part, r) {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case jobs <- job{o.containers, r}:
		case <-ctx.Done():
			return ctx.Err()
		}
		o.containers++
		o.samples += int64(len(r.At))
	}
	return nil
}
