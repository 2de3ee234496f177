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
	{what: "one histogram sample", subject: "HistogramAdd/loadline", reference: "HistogramAdd/upstream", unit: "ns/op", faster: 4},
	{what: "  its allocations", subject: "HistogramAdd/loadline", reference: "HistogramAdd/upstream", unit: "allocs/op", most: new(0.0)},
	{what: "a tick of 200,000 samples", subject: "IngestTick/loadline", reference: "IngestTick/upstream", unit: "ns/op", faster: 4},
	{what: "  its allocations", subject: "IngestTick/loadline", reference: "IngestTick/upstream", unit: "allocs/op", most: new(200.0)},
	{what: "recommendation of a VPA", subject: "Recommend/loadline", reference: "Recommend/upstream", unit: "ns/VPA", faster: 4},
	{what: "adding 50,000 pods instead of 5,000", subject: "AddPods/50000/loadline", reference: "AddPods/5000/loadline", unit: "ns/op", faster: 1. / 12},
	{what: "checkpoints of an unchanged VPA", subject: "CheckpointsIdle/loadline", reference: "CheckpointsIdle/upstream", unit: "ns/VPA", most: new(2000.0)},
	{what: "heap of a container after a day", subject: "Heap/loadline", reference: "Heap/upstream", unit: "B/container", most: new(120 * 1024 * 1024 / 100_000.0)},

	{what: "recommendation without new data", subject: "NothingNew/loadline", reference: "NothingNew/upstream", unit: "ns/VPA", faster: 50, own: true},
	{what: "recommendation, none put off", subject: "Build/loadline", reference: "Build/upstream", unit: "ns/VPA", faster: 2, own: true},
	{what: "statuses written of a VPA", subject: "Recommend/loadline", reference: "Recommend/upstream", unit: "writes/VPA", faster: 10, own: true},
	{what: "adding 5,000 pods, 1,000 VPAs", subject: "AddPods/5000/loadline", reference: "AddPods/5000/upstream", unit: "ns/op", faster: 1, own: true},
	{what: "allocations for an unchanged VPA", subject: "CheckpointsIdle/loadline", reference: "CheckpointsIdle/upstream", unit: "allocs/VPA", most: new(0.1), own: true},
}

func main() {
	results, err := read(io.TeeReader(os.Stdin, os.Stdout))
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
		line, ok := q.line(r)
		fmt.Fprintln(table, line)
		met = met && ok
	}
	return table.Flush() == nil && met
}

// readBenchmarks parses benchmark lines: a name, a number of iterations, then pairs of value and
// unit.
func read(from io.Reader) (results, error) {
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
