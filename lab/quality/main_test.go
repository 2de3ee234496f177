package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

const sample = "../../testdata/traces"

// Runs the quality gate on testdata/traces, without the recordings of TRACES.
func TestRun_SampleMatchesCommittedResults(t *testing.T) {
	var out, errOut bytes.Buffer
	require.Zero(t, run([]string{"-sample", sample, "-results", "."}, &out, &errOut), "%s%s", out.String(), errOut.String())
	for _, p := range experiments {
		require.Contains(t, out.String(), "sample, "+p.name+", short pods, loadline: unused ")
	}
}

// Guards the gate itself: every figure of every row that is worse than the committed one is
// reported.
func TestAgainst_ReportsEachWorseFigure(t *testing.T) {
	content, err := os.ReadFile("sample.json")
	require.NoError(t, err)
	var found table
	require.NoError(t, json.Unmarshal(content, &found))
	for _, p := range experiments {
		for o, rows := range found[p.name] {
			for i, is := range rows {
				for _, g := range gauges[p.kind] {
					was := is
					was.Figures = maps.Clone(is.Figures)
					was.Figures[g.name] = is.Figures[g.name]*0.97 - 1e-6 // also changes a zero
					if g.noise != "" {
						was.Figures[g.noise], is.Figures[g.noise] = 4, 9
						was.Figures[g.name] = is.Figures[g.name] / 3
						is.Figures[g.name]++
					}
					before := slices.Clone(rows)
					before[i] = was
					worse, err := compareRows(before, rows, p.kind)
					require.NoError(t, err)
					require.NotEmpty(t, worse, "%s, %s, %s: %s", p.name, o, is.Recipe, g.name)
					require.Contains(t, fmt.Sprint(worse), "{"+is.Recipe+" "+g.name+": ")
				}
			}
		}
	}
}

func TestRun_FailsOnWorseResult(t *testing.T) {
	content, err := os.ReadFile("sample.json")
	require.NoError(t, err)
	var committed table
	require.NoError(t, json.Unmarshal(content, &committed))
	rows := committed[experiments[cpuUnlimited].name][shortPods]
	rows[1].Figures["unused cores, worst container"] *= 0.9
	rows[1].Figures["starved work, mean"] *= 0.5
	directory := t.TempDir()
	content, err = json.Marshal(committed)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(directory, "sample.json"), content, 0o600))
	placed, err := os.ReadFile("nodes.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(directory, "nodes.json"), placed, 0o600))
	var out, errOut bytes.Buffer
	require.Equal(t, 1, run([]string{"-sample", sample, "-results", directory}, &out, &errOut))
	require.Regexp(t, `worse: sample, CPU, no limit, short pods, loadline: starved work, mean: [0-9.]+, was [0-9.]+: more than 2 % worse`, errOut.String())
	require.Regexp(t, `worse: sample, CPU, no limit, short pods, loadline: unused cores, worst container: [0-9.]+ \((growing|spiky|steady)\), was`, errOut.String())
}

func TestRun_ReportsMissingInput(t *testing.T) {
	for name, args := range map[string][]string{
		"committed result": {"-sample", sample, "-results", t.TempDir()},
		"no .csv.gz files": {"-sample", t.TempDir()},
		"there are no":     {"-sample", sample, "-results", ".", "-traces", t.TempDir(), "-page", "page.md"},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, 1, run(args, &out, &errOut))
		require.Contains(t, errOut.String(), name)
	}
	var out bytes.Buffer
	require.Equal(t, 2, run([]string{"-what"}, &out, &out))
}

// Rows of other recipes or recordings are not comparable, which must not pass as success.
func TestAgainst_RejectsDifferentRows(t *testing.T) {
	rows := []row{{Recipe: "a", Containers: 3}, {Recipe: "b", Containers: 3}}
	for want, committed := range map[string][]row{
		"has no b":                                 rows[:1],
		"has c, which was not replayed":            append(slices.Clone(rows), row{Recipe: "c", Containers: 3}),
		"b was replayed on 4 containers, not on 3": {rows[0], {Recipe: "b", Containers: 4}},
		"has no a":                                 nil,
	} {
		_, err := compareRows(committed, rows, resources.CPU)
		require.EqualError(t, err, want)
	}
	_, err := compareRows(rows, nil, resources.CPU)
	require.EqualError(t, err, "has a, which was not replayed")
	worse, err := compareRows(rows, rows, resources.CPU)
	require.NoError(t, err)
	require.Empty(t, worse)
}

func TestWorsened_Tolerances(t *testing.T) {
	was := row{Figures: map[string]float64{"unused core-hours": 10}}
	is := func(v float64) row { return row{Figures: map[string]float64{"unused core-hours": v}} }
	require.Empty(t, regressions(was, is(10.1), resources.CPU))
	require.Empty(t, regressions(was, is(1), resources.CPU))
	require.Equal(t, []string{"unused core-hours: 10.3, was 10: more than 2 % worse"}, regressions(was, is(10.3), resources.CPU))
	kills := func(v float64) row { return row{Figures: map[string]float64{oomKills: v}} }
	require.Empty(t, regressions(kills(4), kills(8), resources.Memory))
	require.Equal(t, []string{"OOM kills: 9, was 4: more than chance explains"}, regressions(kills(4), kills(9), resources.Memory))
	require.Equal(t, []string{"OOM kills: 1, was 0: more than chance explains"}, regressions(kills(0), kills(1), resources.Memory))
	days := func(v float64) row { return row{Figures: map[string]float64{oomKills: 100, "OOM days, mean": v}} }
	require.Empty(t, regressions(days(0.10), days(0.119), resources.Memory))
	require.Len(t, regressions(days(0.10), days(0.121), resources.Memory), 1, "a fifth more is more than a hundred kills vary")
}
