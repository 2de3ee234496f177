// Command quality is the regression gate for recommendations. It replays recorded usage
// under all presets and limits, and compares cost and risk with the committed results.
// It also writes the tables of the page about quality. Run it in the folder lab:
//
//	go run ./quality                      replay the recordings of ../testdata/traces
//	go run ./quality -traces DIRECTORY    also replay the recordings of a directory
//	go run ./quality -update              write the results
//	go run ./quality -traces DIRECTORY -page docs/quality.md
//	                                      also write the tables of the page and the README
//	go run ./quality -traces DIRECTORY -nodes docs/quality.md
//	                                      write only the tables of nodes
//
// The recordings of testdata/traces last for minutes, with one sample per second. They
// are replayed 60 times slower, with one sample per minute. The shapes are real, the
// speed is not. A result is worse if a figure grew by more than 2 %, or if kills grew by
// more than chance explains. The recipe loadline must never leave more CPU of pods
// unused than the reference.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/source/trace"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

type options struct {
	sample, traces, results string
	update                  bool
	page, overview          string // Markdown files for the tables, empty = none
	nodes                   string // Markdown file for the tables of nodes, empty = none
}

func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("quality", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.sample, "sample", "../testdata/traces", "directory of the recordings that are always replayed")
	flags.StringVar(&o.traces, "traces", "", "directory of additional recordings; skipped if it does not exist")
	flags.StringVar(&o.results, "results", "quality", "directory of the committed results")
	flags.BoolVar(&o.update, "update", false, "write the results instead of comparing with them")
	flags.StringVar(&o.page, "page", "", "Markdown file for the tables of -traces")
	flags.StringVar(&o.overview, "overview", "../README.md", "Markdown file for the figures of the overview; with -page")
	flags.StringVar(&o.nodes, "nodes", "", "Markdown file for the node tables from the recordings of -traces; skips everything else")
	if flags.Parse(args) != nil || flags.NArg() > 0 {
		return 2
	}
	if o.nodes != "" {
		if err := writeNodes(o.nodes, o.traces, nodeDraws); err != nil {
			fmt.Fprintln(stderr, "quality: nodes:", err)
			return 1
		}
		return 0
	}
	worse, err := o.gate(stdout)
	if err != nil {
		fmt.Fprintln(stderr, "quality:", err)
		return 1
	}
	for _, reason := range worse {
		fmt.Fprintln(stderr, "quality: worse:", reason)
	}
	if len(worse) > 0 {
		fmt.Fprintln(stderr, "quality: if the change is intended, run: go run -C lab ./quality -update")
		return 1
	}
	return 0
}

// gate replays the recordings, writes the pages, and returns the regressions.
func (o *options) gate(out io.Writer) ([]string, error) {
	slow, err := os.MkdirTemp("", "quality")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(slow) //nolint:errcheck // it is temporary
	if err := writeSlowed(o.sample, slow); err != nil {
		return nil, fmt.Errorf("recordings of %s: %w", o.sample, err)
	}
	e, err := collect([]string{filepath.Join(slow, "sample.csv.gz")}, false)
	if err != nil {
		return nil, err
	}
	worse, err := o.compareSet("sample", e, out)
	if err != nil {
		return nil, err
	}
	placed, err := gateNodes(slow, o.results, o.update, out)
	worse = append(worse, placed...)
	if err != nil || o.traces == "" {
		return worse, err
	}
	if _, err := os.Stat(o.traces); err != nil && o.page == "" {
		fmt.Fprintf(out, "%s does not exist: replayed only the sample\n", o.traces)
		return worse, nil
	}
	files, err := containers(o.traces)
	if err != nil {
		return nil, err
	}
	if e, err = collect(files, o.page != ""); err != nil {
		return nil, err
	}
	more, err := o.compareSet("traces", e, out)
	if err == nil && o.page != "" {
		err = e.write(o.page, o.overview)
	}
	return append(worse, more...), err
}

// compareSet prints the figures of a set of recordings, and returns regressions against the
// committed results and violations of fixed requirements.
func (o *options) compareSet(set string, e *evidence, out io.Writer) ([]string, error) {
	found := e.table()
	found.print(set, out)
	worse, err := compareTable(set, found, o.results, o.update)
	return append(worse, e.podViolations(set)...), err
}

// containers lists the recordings of a directory without totals of whole pools: hundreds of cores
// would hide all containers, and their memory exceeds the histogram of the reference.
func containers(directory string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.csv.gz"))
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasPrefix(filepath.Base(name), "cluster-pools") })
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s: there are no .csv.gz files", directory))
	}
	return files, nil
}

// slowdown is the number of seconds per recorded second.
const slowdown = 60

// writeSlowed writes all recordings of a directory into one recording in the layout of the
// backtester, with one container for each.
func writeSlowed(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.csv.gz"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, errors.New("there are no .csv.gz files"))
	}
	var content bytes.Buffer
	packed := gzip.NewWriter(&content)
	fmt.Fprintln(packed, "workload,container,timestamp,cpu_cores,memory_bytes")
	for _, name := range files {
		if err := writeSlowedFile(name, packed); err != nil {
			return err
		}
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "sample.csv.gz"), content.Bytes(), 0o600)
}

func writeSlowedFile(from string, to io.Writer) error {
	samples, err := trace.ReadProcess(from)
	if err != nil {
		return err
	}
	const begin = 1767225600 // 1 January 2026, in seconds since 1970
	name := strings.TrimSuffix(filepath.Base(from), ".csv.gz")
	for _, s := range samples {
		fmt.Fprintf(to, "%s,%s,%.0f,%v,%v\n", name, name, begin+s.At*slowdown, s.CPU, s.Memory)
	}
	return nil
}
