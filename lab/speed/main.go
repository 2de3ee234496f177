// Command speed measures the time and memory of replaying recordings.
//
// It runs a program, built by `make plugin`, on each recording of a directory, one after the other,
// and prints a table: rows, time, rows per minute of wall-clock time and of CPU time, and the peak
// resident memory.
//
//	go run -C lab ./speed [-plugin FILE] [-recipe NAME] [-runs N] DIRECTORY
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	plugin := flag.String("plugin", "../bin/kubectl-loadline", "program to measure")
	recipe := flag.String("recipe", "vpa", "recipe to replay, without baselines")
	runs := flag.Int("runs", 3, "runs of each recording; the fastest counts")
	flag.Parse()
	if flag.NArg() != 1 || *runs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := measure(os.Stdout, *plugin, *recipe, flag.Arg(0), *runs); err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(1)
	}
}

type run struct {
	wallTime, cpuTime time.Duration
	maxRSS            int64 // bytes
}

func measure(out io.Writer, plugin, recipe, directory string, runs int) error {
	files, err := filepath.Glob(filepath.Join(directory, "*.csv.gz"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no *.csv.gz", directory))
	}
	fmt.Fprintf(out, "%d processors, recipe %s\n\n| recording | rows | seconds | million rows a minute | of processor time | MiB |\n|---|---|---|---|---|---|\n", runtime.NumCPU(), recipe)
	rows, total := 0, run{}
	for _, file := range files {
		n, err := count(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		best, err := fastest(runs, plugin, recipe, file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		row(out, strings.TrimSuffix(filepath.Base(file), ".csv.gz"), n, best)
		rows, total.wallTime, total.cpuTime, total.maxRSS = rows+n, total.wallTime+best.wallTime, total.cpuTime+best.cpuTime, max(total.maxRSS, best.maxRSS)
	}
	row(out, "sum, largest", rows, total)
	all, err := fastest(runs, plugin, recipe, files...)
	if err == nil {
		row(out, "all at once", rows, all)
	}
	return err
}

func row(out io.Writer, name string, rows int, r run) {
	rate := func(d time.Duration) float64 { return float64(rows) / d.Minutes() / 1e6 }
	fmt.Fprintf(out, "| %s | %d | %.2f | %.1f | %.1f | %.0f |\n", name, rows, r.wallTime.Seconds(), rate(r.wallTime), rate(r.cpuTime), float64(r.maxRSS)/(1<<20))
}

// count returns the number of rows without the header.
func count(name string) (rows int, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(unpacked)
	for rows = -1; lines.Scan(); rows++ {
	}
	return rows, lines.Err()
}

func fastest(runs int, plugin, recipe string, files ...string) (run, error) {
	var all []run
	for range runs {
		var errs bytes.Buffer
		command := exec.Command(plugin, slices.Concat([]string{"backtest", "--quiet", "--baselines=false", "--recipe=" + recipe, "-o", "json", "--file", os.DevNull}, files)...)
		command.Stderr = &errs
		start := time.Now()
		if err := command.Run(); err != nil {
			return run{}, fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(errs.String()))
		}
		took := time.Since(start)
		state := command.ProcessState
		all = append(all, run{took, state.UserTime() + state.SystemTime(), state.SysUsage().(*syscall.Rusage).Maxrss * 1024})
	}
	return slices.MinFunc(all, func(a, b run) int { return int(a.wallTime - b.wallTime) }), nil
}
