package prometheus

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func decode(text string) (string, Response, error) {
	var lines []string
	answer, err := Decode(strings.NewReader(text), DefaultLimits(), func(labels map[string]string, points []Point) {
		line := fmt.Sprint(labels)
		for _, p := range points {
			line += fmt.Sprintf(" %d:%g", p.At.UnixMilli(), p.Value)
		}
		lines = append(lines, line)
	}, nil)
	return strings.Join(lines, "\n"), answer, err
}

func matrix(series string) string {
	return `{"status":"success","data":{"resultType":"matrix","result":[` + series + `]}}`
}

func TestDecode_Matrix(t *testing.T) {
	got, answer, err := decode(matrix(`
		{"metric":{"__name__":"m","pod":"p\"1"},"values":[[1435781430.781,"1"],[1435781445.781,"0.5"]]},
		{"values":[ [ 1435781430 , "-2e3" ] ],"metric":{}}`))
	require.NoError(t, err)
	require.Equal(t, `map[__name__:m pod:p"1] 1435781430781:1 1435781445781:0.5`+"\n"+`map[] 1435781430000:-2000`, got)
	require.Equal(t, Response{Type: "matrix", Series: 2, Points: 3}, answer)
}

func TestDecode_VectorScalarAndEmpty(t *testing.T) {
	got, answer, err := decode(`{"data":{"result":[{"metric":{"a":"b"},"value":[1,"2"]}],"resultType":"vector"},"status":"success","warnings":["slow"],"infos":[]}`)
	require.NoError(t, err)
	require.Equal(t, "map[a:b] 1000:2", got)
	require.Equal(t, Response{Type: "vector", Series: 1, Points: 1, Warnings: []string{"slow"}}, answer)
	for _, kind := range []string{"scalar", "string"} {
		_, answer, err := decode(`{"status":"success","data":{"resultType":"` + kind + `","result":[1435781451.781,"1"]}}`)
		require.NoError(t, err)
		require.Equal(t, kind, answer.Type)
		require.Zero(t, answer.Series)
	}
	for _, text := range []string{matrix(""), `{"status":"success","data":{"resultType":"matrix","result":null}}`} {
		got, _, err := decode(text)
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

func TestDecode_DropsNonFiniteValues(t *testing.T) {
	got, answer, err := decode(matrix(`
		{"metric":{"a":"1"},"values":[[1,"NaN"],[2,"+Inf"],[3,"7"],[4,"-Inf"]]},
		{"metric":{"a":"2"},"values":[[1,"NaN"]]},
		{"metric":{"a":"3"},"values":[]},
		{"metric":{"a":"4"},"histograms":[[1,{"count":"3"}]]}`))
	require.NoError(t, err)
	require.Equal(t, "map[a:1] 3000:7", got)
	require.Equal(t, 4, answer.Unusable)
}

func TestDecode_InvalidSeriesKeepsOthers(t *testing.T) {
	good := `{"metric":{"good":"1"},"values":[[1,"1"]]}`
	for _, bad := range []string{
		`{"metric":{"a":1},"values":[[1,"1"]]}`,
		`{"metric":{},"values":[[1,1]]}`,
		`{"metric":{},"values":[["1","1"]]}`,
		`{"metric":{},"values":[[1,"one"]]}`,
		`{"metric":{},"values":[[1,"1",2]]}`,
		`{"metric":{},"values":[[1]]}`,
		`{"metric":{},"values":[[1e30,"1"]]}`,
		`{"metric":{},"values":{}}`,
		`{"metric":{},"value":7}`,
		`"series"`, `[]`, `3`,
	} {
		got, answer, err := decode(matrix(good + "," + bad + "," + good))
		require.NoError(t, err, bad)
		require.Equal(t, "map[good:1] 1000:1\nmap[good:1] 1000:1", got, bad)
		require.Equal(t, 1, answer.Broken, bad)
		require.Error(t, answer.Last, bad)
	}
}

func TestDecode_InvalidResponsesAreErrors(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{name: "empty", want: "truncated response"},
		{name: "HTML", text: "<html>", want: "invalid character"},
		{name: "list", text: "[]", want: "check that the server is Prometheus"},
		{name: "no status", text: "{}", want: `status ""`},
		{name: "no data", text: `{"status":"success"}`, want: "no data"},
		{name: "data is a list", text: `{"status":"success","data":[]}`, want: "check that the server is Prometheus"},
		{name: "result is an object", text: `{"status":"success","data":{"result":{}}}`, want: "want a list"},
		{name: "rejected query", text: `{"status":"error","errorType":"execution","error":"too many samples"}`,
			want: "rejected the query (execution): too many samples"},
		{name: "truncated series", text: strings.TrimSuffix(matrix(`{"metric":{},"values":[[1,"1"]]}`), `"1"]]}]}}`),
			want: "truncated response"},
		{name: "truncated list of series",
			text: strings.TrimSuffix(matrix(`{"metric":{},"values":[[1,"1"]]},{"metric":{},"values":[[1,"1"]]}`), `}}`),
			want: "truncated response"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := decode(tc.text)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestDecode_EnforcesLimits(t *testing.T) {
	one := `{"metric":{"a":"b"},"values":[[1,"1"]]}`
	many := matrix(strings.TrimSuffix(strings.Repeat(one+",", 1000), ","))
	for _, tc := range []struct {
		name   string
		want   string
		limits Limits
	}{
		{name: "too many series", want: "exceeds 999 series", limits: Limits{Bytes: 1 << 20, SeriesBytes: 1 << 20, Series: 999}},
		{name: "response too large", want: "exceeds 20000 bytes", limits: Limits{Bytes: 20_000, SeriesBytes: 1 << 20, Series: 1000}},
		{name: "series too large", want: "exceeds 900 bytes in one series", limits: Limits{Bytes: 1 << 20, SeriesBytes: 900, Series: 1000}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := many
			if tc.limits.SeriesBytes == 900 {
				text = matrix(`{"metric":{"a":"` + strings.Repeat("b", 2000) + `"},"values":[[1,"1"]]}`)
			}
			_, err := Decode(strings.NewReader(text), tc.limits, func(map[string]string, []Point) {}, nil)
			var large *TooLargeError
			require.ErrorAs(t, err, &large)
			require.ErrorContains(t, err, tc.want)
		})
	}
	n := 0
	_, err := Decode(iotest.OneByteReader(strings.NewReader(many)), Limits{Bytes: 1 << 20, SeriesBytes: 900, Series: 1000}, func(map[string]string, []Point) { n++ }, nil)
	require.NoError(t, err)
	require.Equal(t, 1000, n)
}

func TestDecode_StreamsSeries(t *testing.T) {
	body, server := io.Pipe()
	visited := make(chan struct{})
	go func() {
		fmt.Fprint(server, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"]]},`)
		<-visited
		fmt.Fprint(server, `{"metric":{},"values":[[1,"1"]]}]}}`)
		server.Close()
	}()
	n := 0
	_, err := Decode(body, DefaultLimits(), func(map[string]string, []Point) {
		if n++; n == 1 {
			close(visited)
		}
	}, nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

func FuzzDecode(f *testing.F) {
	f.Add(matrix(`{"metric":{"a":"b"},"values":[[1.5,"1"],[2,"NaN"]]}`))
	f.Add(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}]},"warnings":["w"]}`)
	f.Add(`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`)
	f.Add(`{"status":"error","errorType":"bad_data","error":"no"}`)
	f.Fuzz(func(t *testing.T, text string) {
		limits := Limits{Bytes: 1 << 16, SeriesBytes: 1 << 12, Series: 100}
		series, points := 0, 0
		answer, err := Decode(strings.NewReader(text), limits, func(_ map[string]string, list []Point) {
			series++
			points += len(list)
			for _, p := range list {
				require.False(t, math.IsNaN(p.Value) || math.IsInf(p.Value, 0))
				require.Less(t, p.At.Year(), 6000)
			}
		}, nil)
		require.LessOrEqual(t, series, limits.Series)
		require.Equal(t, points, answer.Points)
		if err == nil && json.Valid([]byte(text)) {
			require.Contains(t, text, "success")
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	var text strings.Builder
	for i := range 10_000 {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"metric":{"container":"app","id":"/kubepods/burstable/pod%d","namespace":"ns","pod":"web-%d"},"values":[`, i, i)
		for h := range 24 {
			if h > 0 {
				text.WriteByte(',')
			}
			fmt.Fprintf(&text, `[%d,"0.%d"]`, 1700000000+3600*h, 10000+i)
		}
		text.WriteString("]}")
	}
	answer := matrix(text.String())
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(strings.NewReader(answer), DefaultLimits(), func(map[string]string, []Point) {}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
