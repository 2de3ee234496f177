package backtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/flags"
)

const head = "workload,container,timestamp,cpu_cores,memory_bytes,cpu_request_cores,memory_request_bytes,cpu_limit_cores,memory_limit_bytes\n"

func series(workload, container string, seed int) string {
	var b strings.Builder
	for i := range 2*288 + 10 {
		fmt.Fprintf(&b, "%s,%s,%d,%.3f,%d,2,4294967296,,\n", workload, container, 1700000000+300*i,
			0.5+0.4*math.Sin(float64(i+seed)/40), 500<<20+(i*7919+seed*104729)%(200<<20))
	}
	return b.String()
}

func recordings(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(head + series("a", "a-1", 1) + series("a", "a-2", 2) + series("b", "b-1", 3)))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one.csv.gz"), packed.Bytes(), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "two.csv"), []byte(head+series("c", "c-1", 4)+series("d", "d-1", 5)+series("e", "e-1", 6)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "series.csv"), []byte("no recording"), 0o600))
	return dir
}

func runArgs(ctx context.Context, args []string, out, errOut io.Writer) int {
	c, fs := Default(), flags.New(name)
	c.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		fmt.Fprintln(errOut, err)
		return flags.ExitUsage
	}
	return Run(ctx, c, fs.Args(), out, errOut)
}

func command(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = runArgs(context.Background(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestBacktest_OutputIndependentOfWorkers(t *testing.T) {
	dir := recordings(t)
	for _, form := range []string{"table", "json", "csv"} {
		code, one, errs := command("-o", form, "--classes", "--baselines=false", "--workers=1", "--recipe=vpa", "--recipe=loadline", dir)
		require.Zero(t, code, errs)
		code, four, _ := command("-o", form, "--classes", "--baselines=false", "--workers=4", "--recipe=vpa", "--recipe=loadline", dir)
		require.Zero(t, code)
		require.Equal(t, one, four, form)
		require.Empty(t, errs)
	}
}

func TestBacktest_OutputFormats(t *testing.T) {
	dir := recordings(t)
	_, table, _ := command("--recipe=vpa:margin=0.3", dir)
	for _, text := range []string{"memory limit: 1.2 x request\n", "cpu: 6 containers, 6.2 container-days, steps of 300 s", "static oracle", "vpa:margin=0.3", "SLACK FLEET %", "OOM DAYS %", "COST"} {
		require.Contains(t, table, text)
	}
	_, text, _ := command("-o", "csv", "--baselines=false", dir)
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+6*2)
	require.Equal(t, "dataset,container,class,step_s,days,recommender,resource,limit_policy,r0,mean_request,mean_usage,slack_abs,slack_rel,slack_rel_peak,"+
		"over_hours,oom,oom_days,above_request_share,throttled_share,unserved_share,starved_share,starved_hours,changes,evictions,churn,reversals,"+
		"t_converge_s,converged,regret_hours", strings.Join(append(rows[0][:1:1], rows[0][2:len(rows[0])-2]...), ","))
	require.Equal(t, []string{"one.csv.gz", "a", "a-1"}, rows[1][:3])
	file := filepath.Join(t.TempDir(), "out.json")
	code, text, _ := command("-o", "json", "--file", file, "--kinds=memory", dir)
	require.Zero(t, code)
	require.Empty(t, text)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var d struct {
		Results   []map[string]any
		Summaries []struct{ Resource, Phase string }
		Costs     []struct{ Recommender string }
	}
	require.NoError(t, json.Unmarshal(content, &d))
	require.Len(t, d.Results, 6*6)
	require.Len(t, d.Costs, 6)
	require.Equal(t, "memory", d.Summaries[0].Resource)
}

func TestBacktest_ReportsInvalidContainers(t *testing.T) {
	dir := recordings(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.csv"), []byte(head+"x,x-1,5,1,,,,,\nx,x-1,4,1,,,,,\n"+series("y", "y-1", 7)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty.csv"), nil, 0o600))
	code, out, errs := command("-o", "csv", "--baselines=false", dir)
	require.Equal(t, 1, code)
	require.Contains(t, errs, filepath.Join(dir, "bad.csv")+":3: column timestamp: x/x-1: is 4, not later than 5")
	require.Contains(t, errs, filepath.Join(dir, "empty.csv")+": is empty")
	require.Contains(t, errs, "2 problems left containers out; the result has the 7 others")
	require.Contains(t, out, "bad.csv,y,y-1,")
	require.Equal(t, 1+7*2, strings.Count(out, "\n"))
}

func TestBacktest_PartsMakeUpTheWhole(t *testing.T) {
	dir := recordings(t)
	lines := map[string]int{}
	for _, part := range []string{"all", "tune", "report"} {
		_, out, _ := command("-q", "-o", "csv", "--baselines=false", "--part", part, dir)
		lines[part] = max(strings.Count(out, "\n")-1, 0)
	}
	require.Equal(t, lines["all"], lines["tune"]+lines["report"])
	require.Positive(t, lines["tune"])
	require.Positive(t, lines["report"])
}

func TestBacktest_ReportsAllInvalidFlags(t *testing.T) {
	code, _, errs := command("--recipe=soup", "--recipe=vpa:margin=x", "--cpu-limit=0.5", "--memory-limit=some", "--mode=hope", "--lifetime-from=now", "--after-oom=never", "--scrape=-1s", "--new-pod-after=-1m", "--max-memory=-1Gi",
		"--kinds=disk", "--part=third", "--output=song", "--workers=0", "--every=-1h", "--warm-up=-1h", "--first-cpu=-1", "--first-factor=0")
	require.Equal(t, 2, code)
	for _, text := range []string{
		`recipe "soup" does not exist`, `margin is "x"`, "--cpu-limit=0.5: must be none, keep-ratio, or a number from 1 up", "--memory-limit=some",
		"--mode=hope: must be in-place or evict", "--lifetime-from=now", "--after-oom=never: must be recorded or afresh",
		"time between two measurements is -1s", "gap that ends a pod is -1m0s", "max-memory", "--kinds=disk", "--part=third", "--output=song", "--workers=0", "--every=-1h", "--warm-up=-1h",
		"--first-cpu=-1", "factor of a guessed request is 0", "missing recordings: name files or directories",
	} {
		require.Contains(t, errs, text)
	}
	code, _, errs = command("--surprise")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "unknown flag: --surprise")
}

func TestBacktest_FailsOnMissingRecordings(t *testing.T) {
	code, _, errs := command(filepath.Join(t.TempDir(), "nowhere"))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "read recordings: ")
	code, _, errs = command(t.TempDir())
	require.Equal(t, 1, code)
	require.Contains(t, errs, "has no file that ends in .csv, .csv.gz or .servers")
}

func TestBacktest_StopsWhenCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	require.Equal(t, 1, runArgs(ctx, []string{recordings(t)}, &out, &errs))
	require.Contains(t, errs.String(), "context canceled")
	require.Empty(t, out.String())
}

func TestBacktest_HTMLIsSelfContained(t *testing.T) {
	dir := recordings(t)
	code, page, errs := command("-o", "html", "--charts=2", "--baselines=false", "--recipe=vpa", "--recipe=loadline", dir)
	require.Zero(t, code, errs)
	for _, text := range []string{"src=", "href=", "@import", "url(", "https://"} {
		require.NotContains(t, page, text)
	}
	_, rest, found := strings.Cut(page, `<script id="data" type="application/json">`)
	require.True(t, found)
	content, _, _ := strings.Cut(rest, "</script>")
	var d struct {
		Planes []struct {
			Resource string
			Points   []struct{ Name string }
		}
		Charts []struct {
			Title   string
			Request []*float64
			Steps   [][][]float64
			Names   [][]string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(content), &d))
	require.Len(t, d.Planes, 2)
	require.Len(t, d.Planes[0].Points, 2)
	require.Len(t, d.Charts, 2*2*2, "two containers, two resources, two recipes")
	for _, c := range d.Charts {
		require.Len(t, c.Request, chartPoints, c.Title)
		require.Len(t, c.Steps[chartPoints-1][0], len(c.Names[0]), c.Title)
	}
	_, again, _ := command("-o", "html", "--charts=2", "--baselines=false", "--workers=1", "--recipe=vpa", "--recipe=loadline", dir)
	require.Equal(t, page, again)
}

// grown returns a container whose memory doubles after some hours and exceeds its limit.
func grown(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(head)
	for i := range 24 * 60 {
		fmt.Fprintf(&b, "w,c,%d,0.2505,%d,0.5,314572800,,\n", 1700000000+60*i, (300+min(i/600, 1)*300)<<20)
	}
	file := filepath.Join(t.TempDir(), "grown.csv")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	return file
}

func eventsOf(t *testing.T, args ...string) []Event {
	t.Helper()
	code, out, errs := command(append([]string{"-o", "events", "--baselines=false"}, args...)...)
	require.Zero(t, code, errs)
	var all []Event
	for line := range strings.Lines(out) {
		var e Event
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		all = append(all, e)
	}
	return all
}

// Without a limit there are no OOM kills, and the last event is the final recommendation: the upper
// end of the usage bucket plus a margin of 15%.
func TestEvents_EndWithRecommendation(t *testing.T) {
	all := eventsOf(t, "--memory-limit=none", "--kinds=cpu", grown(t))
	require.Len(t, all, 2)
	require.Equal(t, Changed, all[0].Event)
	require.Equal(t, "500m", all[0].From)
	last := all[1]
	require.Equal(t, Event{
		Dataset: "grown.csv", Workload: "w", Container: "c", Recommender: "vpa", Resource: "cpu", Event: Recommended,
		At: time.Unix(1700000000+24*60*60, 0).UTC(), Lower: last.Lower, Target: last.Target, Upper: last.Upper,
	}, last)
	target, err := strconv.Atoi(strings.TrimSuffix(last.Target, "m"))
	require.NoError(t, err)
	require.InDelta(t, 251*1.15, target, 251*0.06, "a bucket is 5 % wide")
	require.Equal(t, last.Target, all[0].To)
}

// The job needs the most at the end of each run.
func TestEvents_RunsOfAJobAreNewPods(t *testing.T) {
	var b strings.Builder
	b.WriteString("workload,container,timestamp,memory_bytes\n")
	for day := range 3 {
		for m := range 10 {
			fmt.Fprintf(&b, "job,job,%d,%d\n", 1700000000+86400*day+60*m, (50+m*10)<<20)
		}
	}
	file := filepath.Join(t.TempDir(), "job.csv")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	told := func(args ...string) string {
		code, out, errs := command(append(args, "-q", "-o", "events", "--baselines=false", "--recipe=loadline:pod-min-memory=1", "--memory-limit=1", "--first-memory=1Gi", file)...)
		require.Zero(t, code, errs)
		return out
	}
	require.NotContains(t, told(), `"cause":"NewPod"`)
	require.Equal(t, 1, strings.Count(told("--new-pod-after=1h"), `"cause":"NewPod"`), "the first pod keeps what it was declared with")
	require.Contains(t, told("--new-pod-after=1h", "--max-memory=200Mi"), `"to":"200Mi"`)
	require.Contains(t, told("--after-oom=afresh", "--max-memory=80Mi"), `"use":"90Mi","limit":"80Mi"`)
}

// Usage of the first minutes counts as startup only if the recording is known to begin with a
// start.
func TestStartupFlag_RecordingBeginsWithStart(t *testing.T) {
	var b strings.Builder
	b.WriteString("workload,container,timestamp,cpu_cores\n")
	for m := range 10 {
		fmt.Fprintf(&b, "web,app,%d,%g\n", 1700000000+60*m, map[bool]float64{true: 2, false: 0.1}[m < 3])
	}
	file := filepath.Join(t.TempDir(), "web.csv")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	target := func(args ...string) string {
		code, out, errs := command(append(args, "-q", "-o", "events", "--baselines=false", "--recipe=loadline", file)...)
		require.Zero(t, code, errs)
		_, out, _ = strings.Cut(out, `"event":"recommendation"`)
		_, out, _ = strings.Cut(out, `"target":"`)
		return out[:strings.Index(out, `"`)]
	}
	require.Equal(t, "2143m", target())
	require.Equal(t, "107m", target("--startup"))
}

func TestEvents_OrderKills(t *testing.T) {
	file := grown(t)
	all := eventsOf(t, "--kinds=memory", "--every=1h", "--memory-limit=1.2", file)
	kinds := map[string]int{}
	for i, e := range all {
		kinds[e.Event]++
		require.False(t, e.At.Before(all[max(i-1, 0)].At), "%v comes after %v", e, all[max(i-1, 0)])
		if e.Event == Killed {
			require.Equal(t, "600Mi", e.Use)
			require.Equal(t, time.Unix(1700000000+600*60, 0).UTC(), e.At, "the first sample above the limit")
		}
	}
	require.Equal(t, 1, kinds[Killed])
	require.Positive(t, kinds[Changed])
	require.InDelta(t, 24, kinds[Recommended], 1.5, "one an hour")
	require.Equal(t, Recommended, all[len(all)-1].Event)
	last := eventsOf(t, "--kinds=memory", "--memory-limit=1.2", file)
	require.Equal(t, all[len(all)-1], last[len(last)-1], "whatever was told before")
}

func TestEvents_FileOutputAndProblems(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events")
	good := grown(t)
	code, out, errs := command("-o", "events", "--file", file, good)
	require.Zero(t, code, errs)
	require.Empty(t, out)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(content), `"recommender":"static oracle"`)
	bad := filepath.Join(t.TempDir(), "bad.csv")
	require.NoError(t, os.WriteFile(bad, []byte(head+"x,x-1,5,1,,,,,\nx,x-1,4,1,,,,,\n"), 0o600))
	code, out, errs = command("-o", "events", good, bad)
	require.Equal(t, 1, code)
	require.Contains(t, errs, bad+":3: column timestamp: x/x-1: is 4, not later than 5")
	require.Contains(t, errs, "1 problems left containers out; the result has the 1 others")
	require.Contains(t, out, `"event":"recommendation"`)
	code, _, errs = command("-o", "events", bad)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "nothing could be replayed")
	code, _, errs = command("-o", "events", filepath.Dir(file))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "has no file that ends in .csv")
}
