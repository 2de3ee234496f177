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
	for _, tc := range []struct {
		name   string
		answer string
		code   int
		wanted bool
		want   []float64 // for CPU and memory
		fails  string
	}{
		{name: "share of waiting", answer: series("0.2"), code: 200, wanted: true, want: []float64{0.2, 0}},
		{name: "share above one", answer: series("7"), code: 200, wanted: true, want: []float64{1, 0}},
		{name: "no series", code: 200, wanted: true, want: []float64{0, 0}},
		{name: "waiting not requested", answer: series("0.2"), code: 200, want: []float64{0, 0}},
		{name: "failed query", code: 502, wanted: true, want: []float64{0, 0}, fails: "time that work waited for CPU from Prometheus: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, code, asked = tc.answer, tc.code, 0
			live.Waiting, live.WaitingUnknown = map[bool]string{true: "waited"}[tc.wanted], false
			got, err := shares()
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.answer == "" && tc.code == http.StatusOK, live.WaitingUnknown)
			require.Equal(t, tc.wanted, asked > 0)
			if tc.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.fails)
			}
		})
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
	for _, tc := range []struct {
		name   string
		answer string
		code   int
		wanted bool
		want   []float64 // CPU of a and b, then memory of a and b
		fails  string
	}{
		{name: "series of one container", answer: series("b", "0.25"), code: 200, wanted: true, want: []float64{0, 0.25, 0, 0}},
		{
			name: "values above one", answer: series("a", "1e6") + "," + series("b", "+Inf"), code: 200, wanted: true,
			want: []float64{1, 0, 0, 0},
		},
		{
			name: "values that are not positive numbers", answer: series("a", "NaN") + "," + series("b", "-0.5"), code: 200, wanted: true,
			want: []float64{0, 0, 0, 0},
		},
		{name: "no series", code: 200, wanted: true, want: []float64{0, 0, 0, 0}},
		{name: "throttling not requested", answer: series("b", "0.25"), code: 200, want: []float64{0, 0, 0, 0}},
		{
			name: "series without a pod label", answer: `{"metric":{"ns":"ns","c":"b"},"value":[1772438400,"1"]}`, code: 200, wanted: true,
			want: []float64{0, 0, 0, 0},
		},
		{
			name: "failed query", code: 422, wanted: true, want: []float64{0, 0, 0, 0},
			fails: "time in which CPU limits were reached from Prometheus: ",
		},
		{
			name: "invalid value", answer: series("a", "?") + "," + series("b", "0.25"), code: 200, wanted: true,
			want: []float64{0, 0.25, 0, 0},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, code, live.Throttling, asked = tc.answer, tc.code, tc.wanted, 0
			var got []float64
			err := live.Samples(t.Context(), func(s usage.Sample) { got = append(got, s.Throttled) })
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.wanted, asked > 0)
			if tc.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.fails)
			}
		})
	}
}
