package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func recording(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "job.csv")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func coarsened(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(args, &out))
	return out.String()
}

const columns = "workload,container,timestamp,cpu_cores,memory_bytes,cpu_waiting_share\n"

const gappy = "time,cpu_cores,memory_bytes\n0.0,1,100\n1.0,1,300\n2.0,0,200\n3.0,0,200\n10.0,1,500\n11.0,0,400\n"

func TestRun_AggregatesCPUMeanAndMemoryPerStep(t *testing.T) {
	file := recording(t, gappy)
	require.Equal(t, columns+"job,job,1000,0.5000,200,\njob,job,1008,0.2500,400,\n", coarsened(t, "-step=4s", "-start=1000", file),
		"what ran for two seconds of four has half of its use")
	require.Equal(t, columns+"job,job,1000,0.5000,300,\njob,job,1008,0.2500,500,\n", coarsened(t, "-step=4s", "-memory=max", "-start=1000", file))
}

func TestRun_SlowsAndRepeats(t *testing.T) {
	file := recording(t, "time,cpu_cores,memory_bytes,throttled_share\n0.0,1,100,0.5\n1.0,0,200,0\n")
	require.Equal(t, columns+"job,job,10,1.0000,100,0.500\njob,job,11,1.0000,100,0.500\njob,job,12,0.0000,200,0.000\njob,job,13,0.0000,200,0.000\n",
		coarsened(t, "-slow=2", "-start=10", file))
	require.Equal(t, columns+"job,job,10,0.5000,200,0.250\njob,job,70,0.5000,200,0.250\n", coarsened(t, "-step=2s", "-times=2", "-every=1m", "-start=10", file))
}

func TestRun_SeparatesRuns(t *testing.T) {
	file := recording(t, gappy)
	require.Equal(t, columns+"job,job,1000,0.5000,200,\njob,job,1060,0.2500,400,\n", coarsened(t, "-step=4s", "-apart=1m", "-start=1000", file))
	require.Equal(t, columns+"job,job,1000,0.5000,200,\njob,job,1008,0.2500,400,\n", coarsened(t, "-step=4s", "-apart=2s", "-start=1000", file), "they do not overlap")
}

func TestRun_RejectsInvalidInput(t *testing.T) {
	err := run([]string{"-step=1ms", "-memory=mean", "-slow=0", "-times=0", "-every=-1s", "-start=0"}, &bytes.Buffer{})
	for _, want := range []string{"-step: want whole seconds", `-memory: want last or max, got "mean"`, "-slow: want", "-times: want", "-every: want", "-start: want", "want recordings"} {
		require.ErrorContains(t, err, want)
	}
	for _, tc := range []struct{ name, content, want string }{
		{name: "unknown column", content: "a,b\n1,2\n",
			want: "job.csv:1: column a: is not known: expected the columns time,cpu_cores,memory_bytes"},
		{name: "missing column", content: "time,cpu_cores\n1,2\n",
			want: "job.csv:1: column memory_bytes: is missing: expected the columns time,"},
		{name: "no samples", content: "time,cpu_cores,memory_bytes\n", want: "job.csv:1: has no samples: expected at least one line"},
		{name: "invalid number", content: "time,cpu_cores,memory_bytes\n0,x,1\n",
			want: `job.csv:2: column cpu_cores: is "x": expected a number`},
		{name: "negative number", content: "time,cpu_cores,memory_bytes\n0,-1,1\n",
			want: `job.csv:2: column cpu_cores: is -1: expected 0 or more`},
		{name: "empty field", content: "time,cpu_cores,memory_bytes\n0,,1\n",
			want: `job.csv:2: column cpu_cores: is empty: expected a number`},
		{name: "missing field", content: "time,cpu_cores,memory_bytes\n0,1\n", want: `job.csv:2: has 2 fields: expected 3`},
		{name: "unordered times", content: "time,cpu_cores,memory_bytes\n1,1,1\n0,1,1\n",
			want: "job.csv:3: column time: is 0: expected 1, as in the line before, or later"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.ErrorContains(t, run([]string{recording(t, tc.content)}, &bytes.Buffer{}), tc.want)
		})
	}
}
