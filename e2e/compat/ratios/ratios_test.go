package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const output = `goos: linux
BenchmarkHistogramAdd/upstream-2   100   160.0 ns/op   0 B/op   0 allocs/op
BenchmarkHistogramAdd/loadline-2   100   40.0 ns/op   0 B/op   0 allocs/op
BenchmarkHistogramAdd/loadline-2   100   90.0 ns/op   0 B/op   0 allocs/op
BenchmarkHistogramAdd/loadline-2   100   41.0 ns/op   0 B/op   0 allocs/op
PASS
`

func TestRatios(t *testing.T) {
	found, err := read(strings.NewReader(output))
	require.NoError(t, err)
	q := requirement{what: "add", subject: "HistogramAdd/loadline", reference: "HistogramAdd/upstream", unit: "ns/op", faster: 4}
	line, met := q.line(found)
	require.True(t, met, line)
	require.Equal(t, "add\t160\t40.0\tns/op\t4.00\tratio 4\tpass", line, "the least of three")

	q.faster = 4.1
	line, met = q.line(found)
	require.False(t, met)
	require.Contains(t, line, "MISSED")

	q.most, q.unit, q.own = new(0.0), "allocs/op", true
	line, met = q.line(found)
	require.True(t, met, line)
	require.Contains(t, line, "at most 0.0 (ours)")

	q.reference = "HistogramAdd/other"
	line, met = q.line(found)
	require.False(t, met)
	require.Contains(t, line, "NOT MEASURED")
}

func TestTheTableTellsWhatIsMissed(t *testing.T) {
	found, err := read(strings.NewReader(output))
	require.NoError(t, err)
	var table strings.Builder
	require.False(t, report(&table, found))
	require.Equal(t, len(requirements)-2, strings.Count(table.String(), "NOT MEASURED"))
}
