package prometheus

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

func TestLiveReader_ReturnsSamples(t *testing.T) {
	answers := map[string]string{
		`max without (id, image, instance, node) (rate(cpu_total{job="cadvisor", pod_name=~".+", name!="POD", name!=""}[5m]))`: `{"metric":{"namespace":"ns","pod_name":"p","name":"c"},"value":[1772438400,"0.2509"]}`,
		`max without (id, image, instance, node) (mem{job="cadvisor", pod_name=~".+", name!="POD", name!=""})`: `{"metric":{"namespace":"ns","pod_name":"p","name":"c"},"value":[1772438399,"1024.7"]},
			{"metric":{"namespace":"ns","pod_name":"p"},"value":[1772438399,"1"]},{"metric":{"namespace":"ns","pod_name":"q","name":"c"},"value":[1772438399,"-3"]}`,
	}
	down := false
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		if down {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		text, known := answers[r.FormValue("query")]
		require.True(t, known, r.FormValue("query"))
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[`+text+`]}}`)
	}))
	defer server.Close()
	client, err := New(process.OS{}, Config{Address: server.URL, Timeout: 5 * time.Second})
	require.NoError(t, err)
	live := &LiveReader{Client: client, Usage: Usage{CPUMetric: "cpu_total", MemoryMetric: "mem", Job: "cadvisor",
		NamespaceLabel: "namespace", PodLabel: "pod_name", ContainerLabel: "name"}, Window: 5 * time.Minute}
	var got []usage.Sample
	err = live.Samples(t.Context(), func(s usage.Sample) { got = append(got, s) })
	require.ErrorContains(t, err, "memory usage from Prometheus: 1 of 3 series lack the label namespace, pod_name or name")
	c := usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "c"}
	tick := time.Unix(1772438400, 0).UTC()
	require.Equal(t, []usage.Sample{
		{Container: c, Kind: resources.CPU, At: tick, Amount: 250},
		{Container: c, Kind: resources.Memory, At: tick.Add(-time.Second), Amount: 1024},
		{Container: usage.ContainerKey{Namespace: "ns", Pod: "q", Container: "c"}, Kind: resources.Memory, At: tick.Add(-time.Second), Amount: -1},
	}, got)

	for query := range answers {
		answers[query] = ""
	}
	err = live.Samples(t.Context(), func(usage.Sample) { t.Fatal("no sample") })
	require.ErrorContains(t, err, "no series for query ")
	require.ErrorContains(t, err, ": check the names of the metric, job and labels")
	down = true
	err = live.Samples(t.Context(), func(usage.Sample) { t.Fatal("no sample") })
	require.ErrorContains(t, err, "cpu usage from Prometheus: query http://127.0.0.1")
	require.ErrorContains(t, err, "memory usage from Prometheus")
	require.ErrorContains(t, err, "502")
}

// The waiting time is queried only if requested. A missing metric is no error, and a failed query
// does not affect usage.
func TestLiveReader_WaitingTime(t *testing.T) {
	const waiting = `max without (id, name, image, instance, node) (rate(waited{pod=~".+", c!="POD", c!=""}[5m]))`
	series := func(value string) string {
		return `{"metric":{"ns":"ns","pod":"p","c":"c"},"value":[1772438400,"` + value + `"]}`
	}
	asked, answer, code := 0, series("0.2"), http.StatusOK
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		text := series("0.5")
		if r.FormValue("query") == waiting {
			asked++
			text = answer
			w.WriteHeader(code)
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[`+text+`]}}`)
	}))
	defer server.Close()
	client, err := New(process.OS{}, Config{Address: server.URL, Timeout: 5 * time.Second})
	require.NoError(t, err)
	live := &LiveReader{Client: client, Window: 5 * time.Minute,
		Usage: Usage{CPUMetric: "cpu", MemoryMetric: "mem", NamespaceLabel: "ns", PodLabel: "pod", ContainerLabel: "c"}}
	shares := func() (all []float64, err error) {
		err = live.Samples(t.Context(), func(s usage.Sample) { all = append(all, s.Pressure) })
		return all, err
	}
	for _, c := range []struct {
		answer string
		code   int
		wanted bool
		want   []float64 // for CPU and memory
		fails  string
	}{
		{series("0.2"), 200, true, []float64{0.2, 0}, ""},
		{series("7"), 200, true, []float64{1, 0}, ""},
		{"", 200, true, []float64{0, 0}, ""},
		{series("0.2"), 200, false, []float64{0, 0}, ""},
		{"", 502, true, []float64{0, 0}, "time that work waited for CPU from Prometheus: "},
	} {
		answer, code, asked = c.answer, c.code, 0
		live.Waiting, live.WaitingUnknown = map[bool]string{true: "waited"}[c.wanted], false
		got, err := shares()
		require.Equal(t, c.want, got)
		require.Equal(t, c.answer == "" && c.code == http.StatusOK, live.WaitingUnknown)
		require.Equal(t, c.wanted, asked > 0)
		if c.fails == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.fails)
		}
	}
}

// Throttling is queried once for all containers, and only if requested. Values outside of 0 to 1
// are clamped or dropped.
func TestLiveReader_Throttling(t *testing.T) {
	const throttled = `max without (id, name, image, instance, node) (rate(container_cpu_cfs_throttled_periods_total{pod=~".+", c!="POD", c!=""}[5m])) / ` +
		`clamp_min(max without (id, name, image, instance, node) (rate(container_cpu_cfs_periods_total{pod=~".+", c!="POD", c!=""}[5m])), 10)`
	series := func(container, value string) string {
		return `{"metric":{"ns":"ns","pod":"p","c":"` + container + `"},"value":[1772438400,"` + value + `"]}`
	}
	asked, answer, code := 0, "", http.StatusOK
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		text := series("a", "0.5") + "," + series("b", "0.5")
		if r.FormValue("query") == throttled {
			asked++
			text = answer
			w.WriteHeader(code)
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[`+text+`]}}`)
	}))
	defer server.Close()
	client, err := New(process.OS{}, Config{Address: server.URL, Timeout: 5 * time.Second})
	require.NoError(t, err)
	live := &LiveReader{Client: client, Window: 5 * time.Minute,
		Usage: Usage{CPUMetric: "cpu", MemoryMetric: "mem", NamespaceLabel: "ns", PodLabel: "pod", ContainerLabel: "c"}}
	for name, c := range map[string]struct {
		answer string
		code   int
		wanted bool
		want   []float64 // CPU of a and b, then memory of a and b
		fails  string
	}{
		"one of two":        {series("b", "0.25"), 200, true, []float64{0, 0.25, 0, 0}, ""},
		"a million":         {series("a", "1e6") + "," + series("b", "+Inf"), 200, true, []float64{1, 0, 0, 0}, ""},
		"no number":         {series("a", "NaN") + "," + series("b", "-0.5"), 200, true, []float64{0, 0, 0, 0}, ""},
		"nobody knows":      {"", 200, true, []float64{0, 0, 0, 0}, ""},
		"nobody asks":       {series("b", "0.25"), 200, false, []float64{0, 0, 0, 0}, ""},
		"without a label":   {`{"metric":{"ns":"ns","c":"b"},"value":[1772438400,"1"]}`, 200, true, []float64{0, 0, 0, 0}, ""},
		"the query fails":   {"", 422, true, []float64{0, 0, 0, 0}, "time in which CPU limits were reached from Prometheus: "},
		"a series is wrong": {series("a", "?") + "," + series("b", "0.25"), 200, true, []float64{0, 0.25, 0, 0}, ""},
	} {
		answer, code, live.Throttling, asked = c.answer, c.code, c.wanted, 0
		var got []float64
		err := live.Samples(t.Context(), func(s usage.Sample) { got = append(got, s.Throttled) })
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.wanted, asked > 0, name)
		if c.fails == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.fails, name)
		}
	}
}
