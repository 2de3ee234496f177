package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	command "loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/nodes"
)

// Also reports each worse figure with its row.
func TestNodes_SampleMatchesCommittedResults(t *testing.T) {
	recordings, file := t.TempDir(), filepath.Join(t.TempDir(), "nodes.json")
	require.NoError(t, writeSlowed(sample, recordings))
	found, err := nodeRows(recordings)
	require.NoError(t, err)
	worse, err := compareNodes(found, "nodes.json", false)
	require.NoError(t, err)
	require.Empty(t, worse)
	var names []string
	for _, row := range found {
		names = append(names, row.String())
	}
	require.Subset(t, names, []string{"vpa", "cruisekube", "cruisekube, shared", "loadline:cpu=shared,memory=following, shared"})

	_, err = compareNodes(found, file, false)
	require.ErrorContains(t, err, "committed result")
	_, err = compareNodes(found, file, true)
	require.NoError(t, err)
	found[0].Figures[nodes.FigureNodes] *= 1.03
	worse, err = compareNodes(found, file, false)
	require.NoError(t, err)
	require.Len(t, worse, 1)
	require.Contains(t, worse[0], "nodes, vpa: nodes: ")
	found[0].Recipe = "soup"
	_, err = compareNodes(found, file, false)
	require.ErrorContains(t, err, "other recipes")
}

func TestClusterTable_PrintsNodes(t *testing.T) {
	row := func(name string, shared bool, nodesNeeded, low, high float64) nodes.Summary {
		return nodes.Summary{Row: nodes.Row{Name: name, Shared: shared}, Figures: []backtest.Figure{{Name: nodes.FigureNodes, Value: nodesNeeded, Low: low, High: high}}}
	}
	var b strings.Builder
	c := cluster{name: "Two", about: "two pods"}
	c.table(&b, &command.NodeReport{Pods: 2, Containers: 1, Time: 48 * time.Hour, Step: 5 * time.Minute, Draws: 3, Rows: []nodes.Summary{
		row("first request", false, 4, 4, 4), row(loadlineDefault, false, 3, 2, 3.5), row(loadlineDefault, true, 2, 2, 2),
	}})
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Equal(t, []string{"### Two", "", "Two pods: 2 pods of 1 containers for 2 days, in steps of 5m; 3 draws.", ""}, lines[:4])
	require.Equal(t, "| the first requests | 4 |"+strings.Repeat(" – |", len(nodeColumns)-1), lines[6])
	require.Equal(t, "| `loadline` | 3 [2, 3.5] |"+strings.Repeat(" – |", len(nodeColumns)-1), lines[7])
	require.True(t, strings.HasPrefix(lines[8], "| `loadline`, **shared** | 2 |"))
}

func TestHours_PrintsNodeHours(t *testing.T) {
	j := command.NodeReport{Time: 48 * time.Hour, Best: []backtest.Figure{{Name: nodes.FigureNodesAtBase(), Value: 3, Low: 2, High: 4}, {Name: nodes.FigureAt(1e-3), Value: 2.5, Low: 2.5, High: 2.5}}, Rows: []nodes.Summary{
		{Row: nodes.Row{Name: "first request"}, Figures: []backtest.Figure{{Name: nodes.FigureNodes, Value: 4, Low: 4, High: 4}}},
		{Row: nodes.Row{Name: loadlineDefault, Shared: true}, Figures: []backtest.Figure{{Name: nodes.FigureNodes, Value: 2, Low: 1, High: 3}, {Name: nodes.FigureAt(1e-4), Value: 5, Low: 5, High: 5}}},
	}}
	var b strings.Builder
	nodeHoursTable(&b, &j)
	require.Equal(t, []string{
		"| the first requests | 192 | – | – | – |",
		"| `loadline`, **shared** | 96 [48, 144] | – | – | 240 |",
		"| the best of the reference with hindsight | – | 144 [96, 192] | 120 | – |",
	}, strings.Split(strings.TrimSpace(b.String()), "\n")[4:])
}

func TestWriteNodes_RejectsMissingRecordings(t *testing.T) {
	require.ErrorContains(t, writeNodes(filepath.Join(t.TempDir(), "page.md"), t.TempDir(), 0), "there is none of bitbrains-rnd-2013-08.csv.gz")
}
