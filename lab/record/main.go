// Command record records the usage of running processes once a second, for playback by simulated
// pods in the local control plane. It writes a CSV file, compressed if its name ends in .gz, with
// the columns
//
//	time          seconds since the start of the recording
//	cpu_cores     cores used from this time until the next line's
//	memory_bytes  resident memory at the end of that interval
//
// Processes are chosen by number or by a regular expression on their command line. The usage of
// several processes is added, and later processes join. A recording ends after a given time, on an
// interrupt, or when no process is left. With -gaps it continues without lines until the next
// process, for example between the runs of a job.
//
// With -cgroup, the column throttled_share is the share of an interval in which the CPU limit
// throttled a cgroup.
//
// It reads /proc and runs on Linux only. The resolution of CPU time is a clock tick, 10 ms on all
// common machines. Usage between the last reading and the end of a process is lost.
package main

import (
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

type config struct {
	out                   string
	every, duration, wait time.Duration
	gaps                  bool
	cgroup                string // CPU cgroup of the processes, empty = not recorded
	filter                processFilter
}

func parse(args []string) (config, error) {
	var c config
	fs := flag.NewFlagSet("record", flag.ContinueOnError)
	fs.StringVar(&c.out, "out", "", "file to write, .csv or .csv.gz")
	fs.DurationVar(&c.every, "every", time.Second, "time between samples")
	fs.DurationVar(&c.duration, "for", 0, "length of the recording; 0 means until the processes end")
	fs.DurationVar(&c.wait, "wait", 0, "how long to wait for the first process to appear")
	fs.BoolVar(&c.gaps, "gaps", false, "keep recording while no process runs, until -for ends; for jobs")
	fs.StringVar(&c.cgroup, "cgroup", "", "folder of a CPU cgroup to record throttling from, such as /sys/fs/cgroup/cpu/x")
	pid := fs.Int("pid", 0, "process to record")
	match := fs.String("match", "", "record the processes whose command line matches this regular expression")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	pattern, err := regexp.Compile(*match)
	var problems []error
	check := func(ok bool, text string, values ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(text, values...))
		}
	}
	check(fs.NArg() == 0, "want flags only, got %q", fs.Arg(0))
	check(strings.HasSuffix(strings.TrimSuffix(c.out, ".gz"), ".csv"), "-out: want a file name that ends in .csv or .csv.gz, got %q", c.out)
	check(c.every >= 10*time.Millisecond, "-every: want 10ms or more, got %v", c.every)
	check(!c.gaps || c.duration > 0, "-gaps: requires -for")
	check((*pid == 0) != (*match == ""), "want either -pid or -match")
	check(err == nil, "-match: %w", err)
	c.filter = processFilter{pid: *pid, pattern: pattern, self: os.Getpid()}
	return c, errors.Join(problems...)
}

func run(args []string) error {
	c, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	file, err := os.Create(c.out)
	if err != nil {
		return fmt.Errorf("make recording: %w", err)
	}
	var out io.Writer = file
	closers := []io.Closer{file}
	if strings.HasSuffix(c.out, ".gz") {
		zip, err := gzip.NewWriterLevel(file, gzip.BestCompression)
		if err != nil {
			return fmt.Errorf("make recording: %w", err)
		}
		out, closers = zip, []io.Closer{zip, file}
	}
	lines, err := c.record(ctx, out)
	for _, closer := range closers {
		err = errors.Join(err, closer.Close())
	}
	fmt.Printf("%s: %d samples\n", c.out, lines)
	return err
}

func (c config) record(ctx context.Context, out io.Writer) (lines int, err error) {
	header := "time,cpu_cores,memory_bytes"
	if c.cgroup != "" {
		header += ",throttled_share"
	}
	if _, err := fmt.Fprintln(out, header); err != nil {
		return 0, fmt.Errorf("write recording: %w", err)
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("read /proc: %w", err)
	}
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	started, before := time.Now(), reading(nil)
	var intervalStart time.Time // start of the interval that ends at the next tick
	var throttledBefore time.Duration
	for {
		now := time.Now()
		if before != nil && now.Sub(intervalStart) < c.every/2 { // a late tick, shortly before the next one
			<-ticker.C
			continue
		}
		found, err := readProcesses(proc, c.filter)
		if err != nil {
			return lines, err
		}
		throttledNow, err := c.throttledTime()
		if err != nil {
			return lines, err
		}
		switch {
		case before != nil && len(found) > 0:
			stretch := now.Sub(intervalStart)
			line := fmt.Sprintf("%.1f,%.3f,%d", intervalStart.Sub(started).Seconds(), found.cpuSince(before)/stretch.Seconds(), found.memory())
			if c.cgroup != "" {
				line += fmt.Sprintf(",%.3f", min((throttledNow-throttledBefore).Seconds()/stretch.Seconds(), 1))
			}
			_, err = fmt.Fprintln(out, line)
			if lines++; err != nil {
				return lines, fmt.Errorf("write recording: %w", err)
			}
		case before != nil && !c.gaps:
			return lines, nil
		case len(found) > 0:
			started = now
		case before == nil && now.Sub(started) >= c.wait:
			return 0, errors.New("no process found to record")
		}
		if before != nil || len(found) > 0 {
			before, intervalStart, throttledBefore = found, now, throttledNow
		}
		if before != nil && c.duration > 0 && now.Sub(started) >= c.duration {
			return lines, nil
		}
		select {
		case <-ctx.Done():
			return lines, nil
		case <-ticker.C:
		}
	}
}

// throttledTime returns the time that the cgroup was throttled so far, 0 without a cgroup.
func (c config) throttledTime() (time.Duration, error) {
	if c.cgroup == "" {
		return 0, nil
	}
	return readThrottled(os.DirFS(c.cgroup))
}
