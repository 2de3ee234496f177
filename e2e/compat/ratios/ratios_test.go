package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The CPU frequency fell to a third after the first round of upstream. The ratio of the fastest
// rounds is 1.33, that within all other pairs is 4.
const output = `goos: linux
BenchmarkHistogramAdd/upstream-2      100   160.0 ns/op   0 B/op   0 allocs/op
BenchmarkHistogramAdd/loadline-2      100   120.0 ns/op   0 B/op   0 allocs/op
BenchmarkHistogramAdd/upstream#01-2   100   480.0 ns/op   0 B/op   0 allocs/op
BenchmarkHistogramAdd/loadline#01-2   100   120.0 ns/op   0 B/op   0 allocs/op
BenchmarkHistogramAdd/upstream#02-2   100   492.0 ns/op   0 B/op   0 allocs/op
BenchmarkHistogramAdd/loadline#02-2   100   120.0 ns/op   0 B/op   0 allocs/op
PASS
`

func TestRatio_ComparesRoundsInPairs(t *testing.T) {
	found, err := readBenchmarks(strings.NewReader(output))
	require.NoError(t, err)
	q := requirement{name: "add", subject: "HistogramAdd/loadline", reference: "HistogramAdd/upstream", unit: "ns/op", minRatio: 4}
	line, met := q.row(found)
	require.True(t, met, line)
	require.Equal(t, "add\t480\t120\tns/op\t4.00\tratio 4\tpass", line)

	q.minRatio = 4.1
	line, met = q.row(found)
	require.False(t, met)
	require.Contains(t, line, "MISSED")

	q.max, q.unit, q.isOwn = new(0.0), "allocs/op", true
	line, met = q.row(found)
	require.True(t, met, line)
	require.Contains(t, line, "\t-\tat most 0.0 (ours)")

	q.reference = "HistogramAdd/other"
	line, met = q.row(found)
	require.False(t, met)
	require.Contains(t, line, "NOT MEASURED")
}

func TestRatio_UnpairedRoundIsNotMeasured(t *testing.T) {
	found, err := readBenchmarks(strings.NewReader(strings.ReplaceAll(output, "BenchmarkHistogramAdd/loadline#02-2", "FAIL")))
	require.NoError(t, err)
	line, met := requirement{subject: "HistogramAdd/loadline", reference: "HistogramAdd/upstream", unit: "ns/op", minRatio: 1}.row(found)
	require.False(t, met)
	require.Contains(t, line, "NOT MEASURED")
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{9, 1, 2}))
	require.Equal(t, 3.0, median([]float64{9, 1, 2, 4}))
}

func TestReport_CountsMissingMeasurements(t *testing.T) {
	found, err := readBenchmarks(strings.NewReader(output))
	require.NoError(t, err)
	var table strings.Builder
	require.False(t, report(&table, found))
	require.Equal(t, len(requirements)-2, strings.Count(table.String(), "NOT MEASURED"))
}
