package trace

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, text string) *Trace {
	t.Helper()
	trace, err := Parse(strings.NewReader(text), Columns{})
	require.NoError(t, err)
	return trace
}

type stretch struct{ cpu, memory, seconds float64 }

func visit(trace *Trace, from, to float64) []stretch {
	var all []stretch
	trace.Visit(from, to, func(cpu, memory, seconds float64) {
		all = append(all, stretch{cpu: cpu, memory: memory, seconds: seconds})
	})
	return all
}

func TestTrace_HoldsSamplesAndRepeats(t *testing.T) {
	// Recordings may start after 0 and have gaps.
	trace := parse(t, "time,cpu_cores,memory_bytes\n100,0.5,10\n110,1,20\n130,2,30\n")
	require.InDelta(t, 45, trace.Length(), 1e-9, "the last sample holds for the mean gap")

	require.Equal(t, []stretch{
		{cpu: 0.5, memory: 10, seconds: 5},
		{cpu: 1, memory: 20, seconds: 20},
		{cpu: 2, memory: 30, seconds: 5},
	}, visit(trace, 5, 35))
	require.Equal(t, []stretch{
		{cpu: 2, memory: 30, seconds: 5},
		{cpu: 0.5, memory: 10, seconds: 10},
		{cpu: 1, memory: 20, seconds: 5},
	}, visit(trace, 40, 60))
	require.Equal(t, []stretch{{cpu: 1, memory: 20, seconds: 0}}, visit(trace, 10, 10), "an instant is seen too")
	require.Equal(t, []stretch{{cpu: 0.5, memory: 10, seconds: 1}}, visit(trace, 45*1000, 45*1000+1))

	var seconds, cpu float64
	for _, s := range visit(trace, 0, 45*3) {
		seconds += s.seconds
		cpu += s.cpu * s.seconds
	}
	require.InDelta(t, 135, seconds, 1e-6)
	require.InDelta(t, 3*(5+20+30), cpu, 1e-6)
}

func TestTrace_SingleSampleIsConstant(t *testing.T) {
	trace := parse(t, "time,cpu_cores,memory_bytes\n0,0.25,1e6\n")
	require.Len(t, visit(trace, 0, 3), 3)
	require.Equal(t, stretch{cpu: 0.25, memory: 1e6, seconds: 1}, visit(trace, 7, 8)[0])
}

func TestParse_CustomColumns(t *testing.T) {
	trace, err := Parse(strings.NewReader("b_mem,time,note,b_cpu\n7,0,x,0.1\n"), Columns{CPU: "b_cpu", Memory: "b_mem"})
	require.NoError(t, err)
	require.Equal(t, []stretch{{cpu: 0.1, memory: 7, seconds: 0}}, visit(trace, 0, 0))
}

func TestParse_ReportsLineOfInvalidTraces(t *testing.T) {
	const header = "time,cpu_cores,memory_bytes\n"
	for _, tc := range []struct{ name, text, want string }{
		{name: "empty text", text: "", want: "line 1: want a header line"},
		{name: "no samples", text: header, want: "line 2: want at least one sample"},
		{name: "missing column", text: "time,cpu,memory_bytes\n", want: `line 1: want a column "cpu_cores", got time,cpu,memory_bytes`},
		{
			name: "value that is not a number", text: header + "0,0.1,5\n1,abc,5\n",
			want: `line 3: cpu_cores: want a number that is 0 or more, got "abc"`,
		},
		{name: "negative value", text: header + "0,0.1,-5\n", want: `line 2: memory_bytes: want a number that is 0 or more, got "-5"`},
		{name: "infinite value", text: header + "0,Inf,5\n", want: "line 2: cpu_cores"},
		{name: "missing field", text: header + "0,0.1\n", want: "want 3 comma separated fields"},
		{name: "empty field", text: header + "0,,5\n", want: `line 2: cpu_cores: want a number that is 0 or more, got ""`},
		{
			name: "time that does not advance", text: header + "0,0.1,5\n5,0.1,5\n5,0.1,5\n",
			want: "line 4: time: want more than 5 of the line before, got 5",
		},
		{name: "unclosed quote", text: header + "0,\"0.1,5\n", want: "line 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(tc.text), Columns{})
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestLibrary_ReadsPlainAndCompressedTraces(t *testing.T) {
	dir := t.TempDir()
	text := "time,cpu_cores,memory_bytes\n0,0.1,5\n"
	require.NoError(t, os.Mkdir(filepath.Join(dir, "more"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain.csv"), []byte(text), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte("no trace"), 0o644))
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, err := zip.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "more", "zipped.csv.gz"), zipped.Bytes(), 0o644))

	library := NewLibrary(dir)
	names, err := library.Names()
	require.NoError(t, err)
	require.Equal(t, []string{"more/zipped", "plain"}, names)
	require.NoError(t, library.Check())
	_, err = library.Trace("more/zipped", Columns{})
	require.NoError(t, err)

	_, err = library.Trace("nothing", Columns{})
	require.ErrorContains(t, err, `trace "nothing" is not in `+dir+`; there are: more/zipped, plain`)
	_, err = library.Trace("../../etc/passwd", Columns{})
	require.ErrorContains(t, err, "want a file name below")
	_, err = NewLibrary("").Trace("plain", Columns{})
	require.ErrorContains(t, err, "start it with --traces")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.csv"), []byte("time,cpu_cores,memory_bytes\n0,x,5\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "worse.csv.gz"), []byte("no gzip"), 0o644))
	err = library.Check()
	require.ErrorContains(t, err, filepath.Join(dir, "bad.csv")+` line 2: cpu_cores: want a number`)
	require.ErrorContains(t, err, "worse.csv.gz: want a gzip file")
}
