package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

func read(content string, o Options) (found []*replay.Recording, problems []string) {
	for r, p := range Read(strings.NewReader(content), "f.csv", o) {
		if r != nil {
			found = append(found, r)
		}
		if p != nil {
			problems = append(problems, p.Error())
		}
	}
	return found, problems
}

const head = "workload,container,timestamp,cpu_cores,memory_bytes,cpu_request_cores,memory_request_bytes,cpu_limit_cores,memory_limit_bytes\n"

func packed(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func TestRead_PlainAndCompressed(t *testing.T) {
	content := head +
		"w,a,60,0.5,1000,1,2000,,4000\n" +
		"w,a,120,,3000,1,2000,,4000\r\n" +
		"w,\"b,1\",60.5,0.25,,,,2,\n" +
		"w,\"b,1\",61.5,1e-3,,,,2,"
	for _, tc := range []struct{ name, content string }{
		{name: "plain", content: content},
		{name: "packed", content: packed(t, content)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, problems := read(tc.content, Options{MinMemory: 2000})
			require.Empty(t, problems)
			require.Len(t, found, 2)
			a, b := found[0], found[1]
			require.Equal(t, []int64{60e9, 120e9}, a.At)
			require.InDelta(t, 500, a.Use[resources.CPU][0], 1e-9)
			require.True(t, math.IsNaN(a.Use[resources.CPU][1]))
			require.Equal(t, []float64{2000, 3000}, a.Use[resources.Memory], "raised to the least")
			require.Equal(t, resources.NewList(1000, 2000), a.Requests)
			require.Equal(t, resources.List{}.With(resources.Memory, 4000), a.Limits)
			require.Equal(t, "b,1", b.Container)
			require.Equal(t, []int64{60.5e9, 61.5e9}, b.At)
			require.False(t, b.Has(resources.Memory))
			require.Equal(t, resources.List{}.With(resources.CPU, 2000), b.Limits)
		})
	}
}

func TestRead_AcceptsAnyColumnOrder(t *testing.T) {
	found, problems := read("\ufeffmemory_bytes,timestamp,container,workload\n5,1,c,w\n6,2,c,w\n", Options{})
	require.Empty(t, problems)
	require.Equal(t, []float64{5, 6}, found[0].Use[resources.Memory])
}

// Each problem names file, line, column and the expected value. Other containers are read.
func TestRead_ReportsProblems(t *testing.T) {
	const good = "w,good,1,1,,,,,\nw,good,2,1,,,,,\n"
	lines := func(rows ...string) string { return head + strings.Join(rows, "\n") + "\n" + good }
	for name, c := range map[string]struct {
		content, says string
		none          bool // no container can be read
	}{
		"empty":           {"", "f.csv: is empty: expected a first line workload,container,", true},
		"only a header":   {head, "f.csv:1: has no samples: expected at least one line", true},
		"unknown column":  {"workload,container,timestamp,cpu\n", "f.csv:1: column cpu: is not known: expected the columns workload,", true},
		"column twice":    {"workload,workload\n", "f.csv:1: column workload: is there twice", true},
		"missing column":  {"workload,container,cpu_cores\n", "f.csv:1: column timestamp: is missing", true},
		"no use":          {"workload,container,timestamp\n", "f.csv:1: column cpu_cores: is missing, and memory_bytes too", true},
		"unordered":       {lines("w,a,60,1,,,,,", "w,a,59,1,,,,,"), "f.csv:3: column timestamp: w/a: is 59, not later than 60 in the line before: expected rising time", false},
		"repeated":        {lines("w,a,60,1,,,,,", "w,a,60,1,,,,,"), "f.csv:3: column timestamp: w/a: is 60, not later", false},
		"no time":         {lines("w,a,,1,,,,,"), `f.csv:2: column timestamp: w/a: is "": expected seconds since 1970`, false},
		"milliseconds":    {lines("w,a,1700000000000,1,,,,,"), `is "1700000000000": expected seconds since 1970`, false},
		"negative":        {lines("w,a,60,-1,,,,,"), "f.csv:2: column cpu_cores: w/a: is -1: expected 0 or more", false},
		"not a number":    {lines("w,a,60,1,x,,,,"), `f.csv:2: column memory_bytes: w/a: is "x": expected a number, or nothing`, false},
		"infinite":        {lines("w,a,60,Inf,1,,,,"), `column cpu_cores: w/a: is "Inf": expected a number`, false},
		"no values":       {lines("w,a,60,,,,,,", "w,a,61,,,,,,", "w,a,62,1,,,,,"), "f.csv:2: column cpu_cores: w/a: is empty, and memory_bytes too, in 2 of 3 lines: expected two samples or more", false},
		"unordered gap":   {lines("w,a,60,1,,,,,", "w,a,120,,,,,,", "w,a,100,1,,,,,"), "f.csv:4: column timestamp: w/a: is 100, not later than 120 in the line before", false},
		"bad request":     {lines("w,a,60,1,,x,,,"), `f.csv:2: column cpu_request_cores: w/a: is "x"`, false},
		"another request": {lines("w,a,60,1,,1,,,", "w,a,61,1,,2,,,"), `f.csv:3: column cpu_request_cores: w/a: is "2", was "1": expected the same`, false},
		"too few fields":  {lines("w,a,60,1,,,,,", "w,a,61"), "f.csv:3: w/a: has 3 fields: expected 9", false},
		"no name":         {lines("w,,60,1,,,,,"), "f.csv:2: column container: w/: is empty: expected a name", false},
		"torn apart":      {lines("w,a,60,1,,,,,", "w,a,61,1,,,,,", "w,b,60,1,,,,,", "w,b,61,1,,,,,", "w,a,62,1,,,,,"), "f.csv:6: column container: w/a: was there before: expected all lines of a container one after the other", false},
		"one sample":      {lines("w,a,60,1,,,,,"), "column timestamp: w/a: is the only sample: expected at least two", false},
		"quotes":          {lines("w,a,60,1,,,,,", "w,\"a,60,1,,,,,"), "f.csv:3: w/a: the quotes do not match", false},
		"long line":       {head + good + strings.Repeat("x", 2*maxLineBytes), "f.csv:4: w/good: is longer than 65536 bytes", true},
		"no gzip":         {"\x1f\x8bxx", "f.csv: gzip: ", true},
	} {
		t.Run(name, func(t *testing.T) {
			found, problems := read(c.content, Options{})
			require.Contains(t, strings.Join(problems, "\n"), c.says)
			require.Len(t, problems, 1)
			if c.none {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Equal(t, "good", found[len(found)-1].Container)
		})
	}
}

func TestRead_TruncatedFileKeepsCompleteContainers(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	for c := range 20 {
		for i := range 500 {
			fmt.Fprintf(&b, "w,c%d,%d,%d.%d,%d,,,,\n", c, 60*i+1, i*7919%100, i, i*104729)
		}
	}
	whole := packed(t, b.String())
	found, problems := read(whole[:len(whole)/2], Options{})
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "cannot be read: unexpected EOF: expected a whole file")
	require.Greater(t, len(found), 5)
	require.Less(t, len(found), 20)
	for _, r := range found {
		require.Len(t, r.At, 500, "no container without its end")
	}
}

func TestRead_GapsAndMixedStepsAreWarnings(t *testing.T) {
	row := func(at int) string { return fmt.Sprintf("w,a,%d,1,,,,,\n", at) }
	gap, mixed := head, head
	for i := range 50 {
		gap += row(1 + i*60 + i/25*7200)
		mixed += row(1 + i*60 - i%3*20)
	}
	found, problems := read(gap, Options{})
	require.Len(t, found, 1)
	require.Equal(t, []string{"f.csv:27: column timestamp: w/a: 1 gaps, the longest of 2h1m0s: expected a sample every 1m0s; totals exclude gaps (used nevertheless)"}, problems)
	found, problems = read(mixed, Options{})
	require.Len(t, found, 1)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "steps are not about 40s as usual: expected equal steps")
}

// A line without a value is a gap of one container, so the container is still usable.
func TestRead_LineWithoutValueIsGap(t *testing.T) {
	full, gappy, missing := head, head, head
	for i := range 50 {
		row := fmt.Sprintf("w,a,%d,1,2,,,,\n", 60*i+1)
		full += row
		if i == 20 || i == 30 {
			row = fmt.Sprintf("w,a,%d,,,,,,\n", 60*i+1)
		} else {
			missing += row
		}
		gappy += row
	}
	found, problems := read(gappy, Options{})
	require.Equal(t, []string{"f.csv:22: column cpu_cores: w/a: is empty, and memory_bytes too, in 2 of 50 lines: expected at least one of them; such a line is a gap (used nevertheless)"}, problems)
	without, problems := read(missing, Options{})
	require.Empty(t, problems)
	require.Equal(t, without, found, "as if the lines were missing")

	for i := 20; i < 30; i++ {
		full = strings.Replace(full, fmt.Sprintf("w,a,%d,1,2,", 60*i+1), fmt.Sprintf("w,a,%d,,,", 60*i+1), 1)
	}
	found, problems = read(full, Options{})
	require.Len(t, found, 1)
	require.Len(t, found[0].At, 40)
	require.Equal(t, []string{"f.csv:22: column cpu_cores: w/a: is empty, and memory_bytes too, in 10 of 50 lines: expected at least one of them; such a line is a gap; " +
		"1 gaps, the longest of 11m0s: expected a sample every 1m0s; totals exclude gaps (used nevertheless)"}, problems)
}

func TestRead_StopsEarly(t *testing.T) {
	content := head + "w,a,1,1,,,,,\nw,a,2,1,,,,,\nw,b,1,1,,,,,\nw,b,2,1,,,,,\n"
	n := 0
	for r, p := range Read(strings.NewReader(content), "f", Options{}) {
		require.Nil(t, p)
		require.Equal(t, "a", r.Container)
		n++
		break
	}
	require.Equal(t, 1, n)
}

func FuzzRead(f *testing.F) {
	f.Add(head + "w,a,1,1,,,,,\nw,a,2,1,,,,,\n")
	f.Add(head + "w,\"a,1,1,,,,,\n")
	f.Fuzz(func(t *testing.T, content string) {
		for r, p := range Read(strings.NewReader(content), "f", Options{}) {
			require.True(t, r != nil || p != nil)
			if r != nil {
				require.GreaterOrEqual(t, len(r.At), 2)
				require.Len(t, r.Use[resources.CPU], len(r.At))
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	var content bytes.Buffer
	content.WriteString(head)
	for i := range 100000 {
		fmt.Fprintf(&content, "rnd-%d,vm-%d,%d,0.%d,%d,4,68719476736,,\n", i/9000, i/9000, 1372629804+i*300, i*7919%100000, i*104729)
	}
	b.SetBytes(int64(content.Len()))
	for b.Loop() {
		for r, p := range Read(bytes.NewReader(content.Bytes()), "f", Options{}) {
			if p != nil && !p.Warning {
				b.Fatal(p, r)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100000, "ns/row")
}

func TestRead_WaitingShareIsOptional(t *testing.T) {
	const wide = "workload,container,timestamp,cpu_cores,cpu_waiting_share\n"
	found, problems := read(wide+"w,a,1,0.5,0.2\nw,a,2,0.5,\n", Options{})
	require.Empty(t, problems)
	require.InDelta(t, 0.2, found[0].Waiting[0], 1e-12)
	require.True(t, math.IsNaN(found[0].Waiting[1]))
	found, _ = read(head+"w,a,1,0.5,,,,,\nw,a,2,0.5,,,,,\n", Options{})
	require.Nil(t, found[0].Waiting)
	found, problems = read(wide+"w,a,1,0.5,1.5\nw,a,2,0.5,0\nw,b,1,1,0\nw,b,2,1,1\n", Options{})
	require.Len(t, found, 1)
	require.Equal(t, []string{"f.csv:2: column cpu_waiting_share: w/a: is 1.5: expected a share of time, from 0 to 1"}, problems)
}

func TestDecimal_MatchesParseFloat(t *testing.T) {
	quick := 0
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[0-9]{0,12}(\.[0-9]{0,12})?`).Draw(t, "number")
		value, ok := decimal([]byte(text))
		if !ok {
			return
		}
		quick++
		want, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err, text)
		require.Equal(t, math.Float64bits(want), math.Float64bits(value), text)
	})
	require.Positive(t, quick)
	for _, text := range []string{"", ".", "-1", "1e3", "NaN", "1.2.3", " 1", "1234567890123456", "0x10", "1_000"} {
		_, ok := decimal([]byte(text))
		require.False(t, ok, text)
	}
}
