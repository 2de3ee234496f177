// Command coarsen converts recordings of the command record to the columns that `kubectl loadline
// backtest` reads. Each recording becomes a container with samples at a chosen step. CPU is the
// mean of each step, like a counter read once per step. Memory is the last value of the step, like
// one scrape, or the maximum.
//
// A recording can be slowed down and repeated, because an hour is too short for a recommender that
// learns in days. The result keeps the recorded shape, but not the recorded length.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/source/trace"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "coarsen:", err)
		os.Exit(1)
	}
}

type config struct {
	step, repeatInterval, runInterval time.Duration
	memory                            string
	slowdown                          float64
	times                             int
	start                             int64
	files                             []string
}

func parse(args []string) (config, error) {
	var c config
	fs := flag.NewFlagSet("coarsen", flag.ContinueOnError)
	fs.DurationVar(&c.step, "step", time.Second, "length of a step, after -slow")
	fs.StringVar(&c.memory, "memory", "last", "memory of a step: last or max")
	fs.Float64Var(&c.slowdown, "slow", 1, "seconds in the result per recorded second")
	fs.DurationVar(&c.runInterval, "apart", 0, "time between the starts of two runs of a process, after -slow; 0 means as recorded")
	fs.IntVar(&c.times, "times", 1, "number of repetitions of the recording")
	fs.DurationVar(&c.repeatInterval, "every", 0, "time between the starts of two repetitions; 0 means back to back")
	fs.Int64Var(&c.start, "start", 1767225600, "seconds since 1970 of the first sample")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	c.files = fs.Args()
	var problems []error
	check := func(ok bool, text string, value any) {
		if !ok {
			problems = append(problems, fmt.Errorf(text, value))
		}
	}
	check(c.step >= time.Second && c.step%time.Second == 0, "-step: want whole seconds, got %v", c.step)
	check(c.memory == "last" || c.memory == "max", "-memory: want last or max, got %q", c.memory)
	check(c.slowdown >= 1 && c.slowdown <= 1e6, "-slow: want a number from 1 to 1000000, got %v", c.slowdown)
	check(c.times >= 1 && c.times <= 100000, "-times: want 1 to 100000, got %d", c.times)
	check(c.repeatInterval >= 0 && c.repeatInterval%time.Second == 0, "-every: want whole seconds, got %v", c.repeatInterval)
	check(c.runInterval >= 0 && c.runInterval%time.Second == 0, "-apart: want whole seconds, got %v", c.runInterval)
	check(c.start > 0, "-start: want a time after 1970, got %d", c.start)
	check(len(c.files) > 0, "want recordings of record, got %d", len(c.files))
	return c, errors.Join(problems...)
}

func run(args []string, out io.Writer) error {
	c, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "workload,container,timestamp,cpu_cores,memory_bytes,cpu_waiting_share"); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for _, file := range c.files {
		samples, err := trace.ReadProcess(file)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.Base(file), ".csv")
		if c.runInterval > 0 {
			spaceRuns(samples, c.runInterval.Seconds()/c.slowdown)
		}
		if err := c.write(out, name, samples); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// bin accumulates one step of the result.
type bin struct {
	cpu, throttled float64 // times seconds
	memory         float64
	hasSamples     bool
}

// runGap is the time between two samples, in seconds, that separates two runs of a process. The
// last sample of a run lasts for lastDuration.
const runGap, lastDuration = 3, 1

// bins returns the steps of a recording. Usage is averaged over the whole step even if the process
// ran for a part of it, like a counter read once per step.
func (c config) bins(samples []trace.ProcessSample) []bin {
	step := c.step.Seconds()
	var bins []bin
	for i, s := range samples {
		lasts := float64(lastDuration)
		if i+1 < len(samples) && samples[i+1].At-s.At < runGap {
			lasts = samples[i+1].At - s.At
		}
		from, upTo := s.At*c.slowdown, (s.At+lasts)*c.slowdown
		for n := int(from / step); float64(n)*step < upTo-epsilon; n++ {
			for len(bins) <= n {
				bins = append(bins, bin{})
			}
			b := &bins[n]
			part := min(upTo, float64(n+1)*step) - max(from, float64(n)*step)
			b.cpu, b.throttled, b.hasSamples = b.cpu+s.CPU*part, b.throttled+s.Throttled*part, true
			if c.memory == "last" || s.Memory > b.memory {
				b.memory = s.Memory
			}
		}
	}
	return bins
}

// spaceRuns moves the starts of runs to multiples of apart seconds. A long run delays the next
// ones.
func spaceRuns(samples []trace.ProcessSample, apart float64) {
	begun, moved, before := samples[0].At, samples[0].At, samples[0].At
	for i := range samples {
		s := &samples[i]
		if s.At-before >= runGap {
			end := samples[i-1].At + lastDuration
			for moved += apart; moved < end+runGap; moved += apart {
			}
			begun = s.At
		}
		before, s.At = s.At, s.At-begun+moved
	}
}

// epsilon is smaller than any recorded time, in seconds.
const epsilon = 1e-6

func (c config) write(out io.Writer, name string, samples []trace.ProcessSample) error {
	bins, step := c.bins(samples), int64(c.step.Seconds())
	every := max(int64(c.repeatInterval.Seconds()), int64(len(bins))*step)
	for repetition := range int64(c.times) {
		for n, b := range bins {
			if !b.hasSamples {
				continue
			}
			waiting := ""
			if !math.IsNaN(b.throttled) {
				waiting = strconv.FormatFloat(min(b.throttled/float64(step), 1), 'f', 3, 64)
			}
			at := c.start + repetition*every + int64(n)*step
			if _, err := fmt.Fprintf(out, "%s,%s,%d,%.4f,%.0f,%s\n", name, name, at, b.cpu/float64(step), b.memory, waiting); err != nil {
				return err
			}
		}
	}
	return nil
}
