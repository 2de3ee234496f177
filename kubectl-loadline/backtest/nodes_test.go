package backtest

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// minutely writes the loads of testdata/traces as recordings of one dataset, with each second
// stretched to a minute.
func minutely(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("workload,container,timestamp,cpu_cores,memory_bytes\n")
	for _, name := range []string{"growing", "spiky", "steady"} {
		file, err := os.Open(filepath.Join("../../testdata/traces", name+".csv.gz"))
		require.NoError(t, err)
		content, err := gzip.NewReader(file)
		require.NoError(t, err)
		lines := bufio.NewScanner(content)
		lines.Scan() // skip the header
		for lines.Scan() {
			second, rest, _ := strings.Cut(lines.Text(), ",")
			var at float64
			_, err := fmt.Sscanf(second, "%g", &at)
			require.NoError(t, err)
			fmt.Fprintf(&b, "%s,%s-1,%d,%s\n", name, name, 1700000000+int(at)*60, rest)
		}
		require.NoError(t, lines.Err())
		require.NoError(t, file.Close())
	}
	to := filepath.Join(t.TempDir(), "loads.csv")
	require.NoError(t, os.WriteFile(to, []byte(b.String()), 0o600))
	return to
}

func onNodes(more ...string) []string {
	return append([]string{
		"-q", "--nodes", "--baselines=false", "--recipe=vpa:pod-min-cpu=10", "--recipe=cruisekube", "--node-upstream=vpa:target-cpu=0.5", "--node-upstream=vpa:target-cpu=1",
		"--node-copies=8", "--node-cpu=4", "--node-memory=8Gi", "--node-draws=3", "--node-factors=0.3,0.6,1,1.5",
	}, more...)
}

func TestNodes_AllOutputFormats(t *testing.T) {
	file := minutely(t)
	code, table, errs := command(onNodes(file)...)
	require.Zero(t, code, errs)
	for _, text := range []string{
		"nodes: 4 cores, 8Gi; at most one is emptied every 1h0m0s\n", "pods: 8 for each container, ", "shared: cpu, every 5 minutes\n", "nodes: 24 pods of 3 containers, ", "3 draws of containers", "NOT SERVED %", "EVICTIONS/DAY",
		"first request", "cruisekube, shared", "best upstream with hindsight", "NODES AT 0.1 %", "nodes at equal unserved work; BEST is the best upstream setting with hindsight, BASE is vpa:pod-min-cpu=10 unscaled, at its own unserved work:\n",
		"cpu: 3 containers", // the scores without nodes are included
	} {
		require.Contains(t, table, text)
	}
	require.NotContains(t, table, "vpa:target-cpu", "settings of upstream have no row of their own")

	_, text, _ := command(onNodes("-o", "csv", file)...)
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(rows), 1+1+2*5, "first requests; as it is and with a factor at least: two recipes, one of them shared, too, and two of upstream")
	require.Equal(t, []string{"recommender", "shared", "as_is", "cpu_factor"}, rows[0][:4])
	require.Equal(t, []string{"first request", "false", "true", "1"}, rows[1][:4])

	_, text, _ = command(onNodes("-o", "json", file)...)
	var d struct {
		Results []map[string]any
		Nodes   struct {
			Pods, Draws int
			Base        string
			Rows        []struct {
				Recommender string
				Shared      bool
				Figures     []struct {
					Name             string
					Value, Low, High *float64
				}
			}
			BestUpstream []struct{ Name string }
			Runs         []map[string]any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	require.NotEmpty(t, d.Results)
	require.Equal(t, 24, d.Nodes.Pods)
	require.Equal(t, "vpa:pod-min-cpu=10", d.Nodes.Base)
	require.Len(t, d.Nodes.Rows, 6)
	require.Len(t, d.Nodes.Runs, len(rows)-1)
	require.Len(t, d.Nodes.BestUpstream, 4)
	figures := map[string]float64{}
	for _, f := range d.Nodes.Rows[3].Figures {
		if f.Value != nil {
			figures[f.Name] = *f.Value
		}
	}
	require.True(t, d.Nodes.Rows[3].Shared)
	require.Positive(t, figures["nodes"])
	require.Positive(t, figures["resizes_per_hour"])

	_, page, _ := command(onNodes("-o", "html", "--charts=0", file)...)
	_, rest, _ := strings.Cut(page, `<script id="data" type="application/json">`)
	content, _, _ := strings.Cut(rest, "</script>")
	var p struct {
		Nodes struct {
			Columns []string
			Rows    []struct {
				Name   string
				Points [][]*float64
				Cells  []string
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(content), &p))
	require.Len(t, p.Nodes.Rows, 5, "first requests, three rows of recipes, and the best of upstream")
	require.NotEmpty(t, p.Nodes.Rows[1].Points)
	require.Len(t, p.Nodes.Rows[1].Cells, len(p.Nodes.Columns))
}

func TestNodes_OutputIndependentOfWorkers(t *testing.T) {
	file := minutely(t)
	for _, form := range []string{"table", "json"} {
		_, one, _ := command(onNodes("-o", form, "--workers=1", file)...)
		_, four, _ := command(onNodes("-o", form, "--workers=4", file)...)
		require.Equal(t, one, four)
		require.NotEmpty(t, one)
	}
}

func TestCompareNodes_ReturnsRowsForRecipes(t *testing.T) {
	c := Default()
	c.Baselines, c.Kinds, c.Recipes = false, []string{"cpu"}, []string{"vpa", "cruisekube"}
	c.Nodes.Upstream, c.Nodes.Draws, c.Nodes.Copies, c.Nodes.Factors = nil, 0, 4, []float64{1}
	j, err := CompareNodes(context.Background(), c, minutely(t))
	require.NoError(t, err)
	require.Equal(t, 12, j.Pods)
	require.Len(t, j.Rows, 4)
	require.Empty(t, j.Best)
	require.False(t, c.Nodes.On, "the configuration stays as it is")
	for _, r := range j.Rows {
		require.Positive(t, r.Outcome.AsIs.Nodes, r.Name)
		require.Zero(t, r.Outcome.AsIs.Kills, "of memory that does not count")
	}
	c.Recipes = []string{"soup"}
	_, err = CompareNodes(context.Background(), c, minutely(t))
	require.ErrorContains(t, err, `recipe "soup" does not exist`)
	c = Default()
	_, err = CompareNodes(context.Background(), c, filepath.Join(t.TempDir(), "nowhere"))
	require.Error(t, err)
}

func TestNodes_ReportsInvalidFlags(t *testing.T) {
	code, _, errs := command("--nodes", "-o", "events", "--node-cpu=0", "--node-memory=-1Gi", "--node-copies=0", "--node-time=1m", "--node-scale-cpu=0", "--node-scale-memory=-1",
		"--node-placing=1s", "--node-consolidate=1s", "--node-share=disk", "--node-factors=0", "--node-upstream=soup", "--node-draws=-1", "x.csv")
	require.Equal(t, 2, code)
	for _, text := range []string{
		"--output=events: must be another one with --nodes", "--node-cpu=0: must be more than 0", "--node-memory=-1Gi", "--node-copies=0: must be from 1 to 1000",
		"--node-time=1m0s: must be at least --node-step=5m0s", "--node-scale-cpu=0", "--node-scale-memory=-1", "--node-placing=1s: must be 0, or at least --node-step=5m0s",
		"--node-consolidate=1s", "--node-share=disk: must be cpu or memory", "--node-factors=0", `--node-upstream: recipe "soup" does not exist`, "--node-draws=-1",
	} {
		require.Contains(t, errs, text)
	}
	short := filepath.Join(t.TempDir(), "short.csv")
	require.NoError(t, os.WriteFile(short, []byte("workload,container,timestamp,cpu_cores\nw,c,60,1\nw,c,120,1\n"), 0o600))
	code, _, errs = command("--nodes", "-q", short)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no recording is long enough for nodes")
}
