package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/backtest"
)

const sample = "../../testdata/traces"

// The short form of `make quality`, as a part of all tests.
func TestRecommendationsAreNotWorseThanTheyWere(t *testing.T) {
	var out, errOut bytes.Buffer
	require.Zero(t, run([]string{"-sample", sample, "-results", "."}, &out, &errOut), "%s%s", out.String(), errOut.String())
	require.Contains(t, out.String(), "sample, limits equal to requests, vpa: cost ")
}

// A gate that cannot fail proves nothing.
func TestAWorseResultFails(t *testing.T) {
	content, err := os.ReadFile("sample.json")
	require.NoError(t, err)
	var committed map[string][]backtest.Cost
	require.NoError(t, json.Unmarshal(content, &committed))
	better := committed[configurations[0].name]
	better[0].CoreHours *= 0.9
	better[2].Total *= 0.5
	directory := t.TempDir()
	content, err = json.Marshal(committed)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(directory, "sample.json"), content, 0o600))
	var out, errOut bytes.Buffer
	require.Equal(t, 1, run([]string{"-sample", sample, "-results", directory}, &out, &errOut))
	require.Contains(t, errOut.String(), "worse: memory limit 1.2 x request, no cpu limit: vpa: unused core-hours: ")
	require.Contains(t, errOut.String(), "loadline:pod-min-cpu=10,pod-min-memory=8: total cost: ")
}

func TestWhatIsMissingIsTold(t *testing.T) {
	for name, args := range map[string][]string{
		"committed result": {"-sample", sample, "-results", t.TempDir()},
		"no .csv.gz files": {"-sample", t.TempDir()},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, 1, run(args, &out, &errOut))
		require.Contains(t, errOut.String(), name)
	}
	var out bytes.Buffer
	require.Equal(t, 2, run([]string{"-what"}, &out, &out))
}

func TestWhatHasWorsened(t *testing.T) {
	was := backtest.Cost{Candidate: "a", CoreHours: 10, GiBHours: 8, Kills: 4, Evictions: 3, StarvedCoreHours: 2, Total: 10 + 1 + 80 + 3 + 8}
	require.Empty(t, worsened(was, was))
	for name, change := range map[string]func(*backtest.Cost){
		"total cost: 104.55, was 102":             func(c *backtest.Cost) { c.Total *= 1.025 },
		"unused core-hours: 10.3, was 10":         func(c *backtest.Cost) { c.CoreHours *= 1.03 },
		"unused GiB-hours":                        func(c *backtest.Cost) { c.GiBHours *= 1.03 },
		"starved core-hours":                      func(c *backtest.Cost) { c.StarvedCoreHours *= 1.03 },
		"evictions: 4, was 3":                     func(c *backtest.Cost) { c.Evictions++ },
		"kills for want of memory: 9, were 4: mo": func(c *backtest.Cost) { c.Kills = 9 },
	} {
		is := was
		change(&is)
		reasons := worsened(was, is)
		require.Len(t, reasons, 1, name)
		require.Contains(t, fmt.Sprint(reasons), name)
	}
	better := was
	better.Total, better.Kills, better.CoreHours = 1, 0, 0
	require.Empty(t, worsened(was, better))
	slightly := was
	slightly.CoreHours *= 1.01
	require.Empty(t, worsened(was, slightly))
}
