package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
)

type entry struct {
	pid, parent, start, user, system, pages int
	name, command                           string
}

func procFS(t *testing.T, entries ...entry) procfs.FS {
	dir := t.TempDir()
	write := func(e entry, name, text string) {
		folder := filepath.Join(dir, strconv.Itoa(e.pid))
		require.NoError(t, os.MkdirAll(folder, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "uptime"), []byte("1 1"), 0o600))
	for _, e := range entries {
		write(e, "stat", fmt.Sprintf("%d (%s) S %d 0 0 0 0 0 0 0 0 0 %d %d 0 0 20 0 1 0 %d 0 %d", e.pid, e.name, e.parent, e.user, e.system, e.start, e.pages)+strings.Repeat(" 0", 28))
		write(e, "cmdline", e.command)
	}
	proc, err := procfs.NewFS(dir)
	require.NoError(t, err)
	return proc
}

func TestRead_SumsMatchingProcesses(t *testing.T) {
	c := processFilter{pattern: regexp.MustCompile(`server --port`), self: 9}
	before, err := readProcesses(procFS(t,
		entry{pid: 5, start: 50, user: 100, system: 20, pages: 10, name: "a (b) c", command: "server\x00--port"},
		entry{pid: 6, start: 60, user: 7, pages: 3, name: "other", command: "other"},
		entry{pid: 8, start: 61, name: "sh", command: "sh -c record server --port"},
		entry{pid: 9, parent: 8, start: 70, name: "record", command: "record server --port"},
	), c)
	require.NoError(t, err)
	require.Len(t, before, 1)
	require.Equal(t, 10*os.Getpagesize(), before.memory())

	after, err := readProcesses(procFS(t,
		entry{pid: 5, start: 50, user: 130, system: 40, pages: 20, name: "a (b) c", command: "server\x00--port"},
		entry{pid: 7, start: 90, user: 25, pages: 1, name: "new", command: "server\x00--port"},
	), c)
	require.NoError(t, err)
	require.InDelta(t, 0.75, after.cpuSince(before), 1e-9)
	require.Equal(t, 21*os.Getpagesize(), after.memory())
}

func TestSince_TreatsReusedPIDAsNewProcess(t *testing.T) {
	before, err := readProcesses(procFS(t, entry{pid: 5, start: 50, user: 1000, name: "x"}), processFilter{pid: 5})
	require.NoError(t, err)
	after, err := readProcesses(procFS(t, entry{pid: 5, start: 99, user: 10, name: "x"}), processFilter{pid: 5})
	require.NoError(t, err)
	require.InDelta(t, 0.1, after.cpuSince(before), 1e-9)
}

// A job has no process between its runs. Usage of a run before its first sample counts.
func TestRun_SkipsGapsBetweenRuns(t *testing.T) {
	out := filepath.Join(t.TempDir(), "job.csv")
	done := make(chan error, 1)
	go func() {
		var problems []error
		for range 2 {
			problems = append(problems, exec.Command("sleep", "0.3142").Run())
			time.Sleep(400 * time.Millisecond)
		}
		done <- errors.Join(problems...)
	}()
	require.NoError(t, run([]string{"-out", out, "-every", "50ms", "-wait", "10s", "-for", "2500ms", "-gaps", "-match", "^sleep 0.3142"}))
	require.NoError(t, <-done)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	require.NoError(t, err)
	longest, before := 0.0, 0.0
	for _, row := range rows[1:] {
		at, err := strconv.ParseFloat(row[0], 64)
		require.NoError(t, err)
		longest, before = max(longest, at-before), at
	}
	require.Greater(t, longest, 0.2)
}

func TestThrottled_ReadsBothCgroupVersions(t *testing.T) {
	group := func(content string) fstest.MapFS { return fstest.MapFS{"cpu.stat": {Data: []byte(content)}} }
	held, err := readThrottled(group("nr_periods 30\nnr_throttled 4\nthrottled_time 2500000000\n"))
	require.NoError(t, err)
	require.Equal(t, 2500*time.Millisecond, held)
	held, err = readThrottled(group("usage_usec 30\nthrottled_usec 2500000\n"))
	require.NoError(t, err)
	require.Equal(t, 2500*time.Millisecond, held)
	for _, tc := range []struct{ name, content, want string }{
		{name: "no throttled time", content: "usage_usec 30\n", want: "want a cpu.stat with throttled_time or throttled_usec"},
		{name: "invalid throttled time", content: "throttled_time x\n", want: "read cpu.stat"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err = readThrottled(group(tc.content))
			require.ErrorContains(t, err, tc.want)
		})
	}
	err = run([]string{"-out", filepath.Join(t.TempDir(), "x.csv"), "-pid", "1", "-cgroup", "/nowhere"})
	require.ErrorContains(t, err, "-cgroup: want the folder of a CPU cgroup")
}

func TestParse_RejectsInvalidFlags(t *testing.T) {
	_, err := parse([]string{"-out", "x.txt", "-every", "1ms", "-pid", "1", "-match", "(", "-gaps"})
	for _, want := range []string{"-out: want a file name that ends in .csv", "-every: want 10ms or more", "either -pid or -match", "-match: error parsing regexp", "-gaps: requires -for"} {
		require.ErrorContains(t, err, want)
	}
	err = run([]string{"-out", filepath.Join(t.TempDir(), "x.csv"), "-match", "no process has this command line"})
	require.ErrorContains(t, err, "no process found to record")
}

func TestRun_RecordsProcess(t *testing.T) {
	cmd := exec.Command("sleep", "0.5")
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	out := filepath.Join(t.TempDir(), "sleep.csv.gz")
	require.NoError(t, run([]string{"-out", out, "-every", "50ms", "-pid", strconv.Itoa(cmd.Process.Pid)}))
	require.NoError(t, <-done)

	data, err := os.ReadFile(out)
	require.NoError(t, err)
	zip, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	rows, err := csv.NewReader(zip).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"time", "cpu_cores", "memory_bytes"}, rows[0])
	require.Greater(t, len(rows), 3)
	require.Equal(t, "0.0", rows[1][0])
	memory, err := strconv.Atoi(rows[1][2])
	require.NoError(t, err)
	require.Positive(t, memory)
}
