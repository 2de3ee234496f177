// Command ratios checks the benchmarks of package compat against requirements. It copies their
// output and appends a table with the cost of upstream and Loadline and the result. Each benchmark
// measures both in alternating rounds. The ratio is the median of the ratios of the rounds, and
// each other figure the median of its rounds. It exits with 1 if a requirement is missed or was not
// measured.
//
//	go test -run '^$' -bench . ./compat -rounds=9 | go run ./compat/ratios
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// requirements come from the issue about the benchmarks, followed by our own against regressions.
var requirements = []requirement{
	{name: "one histogram sample", subject: "HistogramAdd/loadline", reference: "HistogramAdd/upstream", unit: "ns/op", minRatio: 4},
	{name: "  its allocations", subject: "HistogramAdd/loadline", reference: "HistogramAdd/upstream", unit: "allocs/op", max: new(0.0)},
	{name: "a tick of 200,000 samples", subject: "IngestTick/loadline", reference: "IngestTick/upstream", unit: "ns/op", minRatio: 4},
	{name: "  its allocations", subject: "IngestTick/loadline", reference: "IngestTick/upstream", unit: "allocs/op", max: new(200.0)},
	{name: "recommendation of a VPA", subject: "Recommend/loadline", reference: "Recommend/upstream", unit: "ns/VPA", minRatio: 4},
	{name: "adding 50,000 pods instead of 5,000", subject: "AddPods/50000/loadline", reference: "AddPods/5000/loadline", unit: "ns/op", minRatio: 1. / 12},
	{name: "checkpoints of an unchanged VPA", subject: "CheckpointsIdle/loadline", reference: "CheckpointsIdle/upstream", unit: "ns/VPA", max: new(2000.0)},
	{name: "heap of a container after a day", subject: "Heap/loadline", reference: "Heap/upstream", unit: "B/container", max: new(120 * 1024 * 1024 / 100_000.0)},

	{name: "recommendation without new data", subject: "NothingNew/loadline", reference: "NothingNew/upstream", unit: "ns/VPA", minRatio: 50, isOwn: true},
	{name: "recommendation, none put off", subject: "Build/loadline", reference: "Build/upstream", unit: "ns/VPA", minRatio: 2, isOwn: true},
	{name: "statuses written of a VPA", subject: "Recommend/loadline", reference: "Recommend/upstream", unit: "writes/VPA", minRatio: 10, isOwn: true},
	{name: "adding 5,000 pods, 1,000 VPAs", subject: "AddPods/5000/loadline", reference: "AddPods/5000/upstream", unit: "ns/op", minRatio: 1, isOwn: true},
	{name: "allocations for an unchanged VPA", subject: "CheckpointsIdle/loadline", reference: "CheckpointsIdle/upstream", unit: "allocs/VPA", max: new(0.1), isOwn: true},
}

func main() {
	results, err := readBenchmarks(io.TeeReader(os.Stdin, os.Stdout))
	if err != nil {
		fmt.Fprintln(os.Stderr, "ratios: read standard input:", err)
		os.Exit(2)
	}
	if !report(os.Stdout, results) {
		os.Exit(1)
	}
}

// report prints the table and reports whether all requirements are met.
func report(w io.Writer, r results) bool {
	met := true
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nbenchmark\treference\tloadline\tunit\tratio\trequired\tresult")
	for _, q := range requirements {
		line, ok := q.row(r)
		fmt.Fprintln(table, line)
		met = met && ok
	}
	return table.Flush() == nil && met
}

// readBenchmarks parses benchmark lines: a name, a number of iterations, then pairs of value and
// unit.
func readBenchmarks(from io.Reader) (results, error) {
	found := results{}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		found.add(words[0], words[2:])
	}
	return found, lines.Err()
}
