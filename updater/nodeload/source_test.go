package nodeload

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/pkg/testkit"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// serve returns a source that queries a server with handle.
func serve(t *testing.T, handle http.HandlerFunc) *Source {
	t.Helper()
	server := httptest.NewServer(testkit.StrictPrometheus(t, handle))
	t.Cleanup(server.Close)
	return newSourceFor(t, server.URL, DefaultConfig())
}

func newSourceFor(t *testing.T, address string, c Config) *Source {
	t.Helper()
	require.NoError(t, c.Validate(address))
	s, err := NewSource(process.OS{}, c, prometheus.Config{Address: address, Timeout: 10 * time.Second}, "")
	require.NoError(t, err)
	return s
}

func TestNewSource_AddsMatchers(t *testing.T) {
	for _, tc := range []struct{ name, metric, matchers, want string }{
		{"metric", "node_load1", `cluster="eu"`, `min by (instance) (node_load1{cluster="eu"})`},
		{"selector", `node_load1{job="node"}`, `cluster="eu"`, `min by (instance) (node_load1{job="node", cluster="eu"})`},
		{"none", "node_load1", "", "min by (instance) (node_load1)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := ""
			server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.FormValue("query")
				fmt.Fprint(w, matrix())
			}))
			t.Cleanup(server.Close)
			config := DefaultConfig()
			config.Metric = tc.metric
			s, err := NewSource(process.OS{}, config, prometheus.Config{Address: server.URL, Timeout: 10 * time.Second}, tc.matchers)
			require.NoError(t, err)
			_, err = s.Loads(t.Context(), nil, noon)
			require.ErrorContains(t, err, "--node-load-metric="+tc.metric+": no series in Prometheus")
			require.Equal(t, tc.want, asked)
		})
	}
}

// series is one series of an answer, with a value every 15 s for the two minutes before noon, and -
// for a missing value.
func series(instance, values string) string { return seriesBefore(noon, instance, values) }

func seriesBefore(end time.Time, instance, values string) string {
	var points []string
	for i, v := range strings.Fields(values) {
		if v != "-" {
			points = append(points, fmt.Sprintf(`[%d,%q]`, end.Add(-2*time.Minute+time.Duration(i)*15*time.Second).Unix(), v))
		}
	}
	labels, _ := json.Marshal(map[string]string{"__name__": "node_load1", "instance": instance, "job": "node-exporter"})
	return fmt.Sprintf(`{"metric":%s,"values":[%s]}`, labels, strings.Join(points, ","))
}

func matrix(series ...string) string {
	return `{"status":"success","data":{"resultType":"matrix","result":[` + strings.Join(series, ",") + `]}}`
}

func object(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-" + "x", ResourceVersion: "1"}, Status: corev1.NodeStatus{
		Capacity:   cpus("4"),
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	for _, f := range change {
		f(n)
	}
	return n
}

func addressed(addresses ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
	}
}

func TestSourceLoads_QueriesTwoMinutes(t *testing.T) {
	var asked []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/api/v1/query_range", r.URL.Path)
		start, err := strconv.ParseInt(r.FormValue("start"), 10, 64)
		require.NoError(t, err)
		end, err := strconv.ParseInt(r.FormValue("end"), 10, 64)
		require.NoError(t, err)
		require.Equal(t, noon.Add(-2*time.Minute).Unix(), start)
		require.Equal(t, noon.Unix(), end)
		asked = append(asked, r.FormValue("query")+" each "+r.FormValue("step")+" within "+r.FormValue("timeout"))
		fmt.Fprint(w, matrix(series("a", "1 1 1 1 1 1 1 1 1")))
	})
	_, err := s.Loads(t.Context(), []*corev1.Node{object("a")}, noon)
	require.NoError(t, err)
	slow, err := NewSource(process.OS{}, DefaultConfig(), prometheus.Config{Address: "http://" + s.client.Server(), Timeout: time.Minute}, "")
	require.NoError(t, err)
	_, err = slow.Loads(t.Context(), []*corev1.Node{object("a")}, noon)
	require.NoError(t, err)
	for _, interval := range []time.Duration{10 * time.Second, 15 * time.Second, time.Second, 90 * time.Second, 1234567 * time.Microsecond} {
		often := DefaultConfig()
		often.Interval = interval
		_, err = newSourceFor(t, "http://"+s.client.Server(), often).Loads(t.Context(), []*corev1.Node{object("a")}, noon)
		require.NoError(t, err, interval)
	}
	const query = "min by (instance) (node_load1) each 15 within "
	require.Equal(t, []string{query + "10s", query + "30s", query + "5s", query + "7s500ms", query + "500ms", query + "10s", query + "617ms"}, asked, "time is left to free nodes")
}

func TestSourceLoads_ReturnsMinimumOfTwoMinutes(t *testing.T) {
	for name, c := range map[string]struct {
		series []string
		load   float64 // -1: unknown
	}{
		"steady":                          {[]string{series("a", "5 5 5 5 5 5 5 5 5")}, 5},
		"one moment of rest":              {[]string{series("a", "5 9 9 9 9 9 2 9 9")}, 2},
		"rest when the window began":      {[]string{series("a", "1 9 9 9 9 9 9 9 9")}, 1},
		"rest just now":                   {[]string{series("a", "9 9 9 9 9 9 9 9 1")}, 1},
		"no series":                       {[]string{series("elsewhere", "9 9 9 9 9 9 9 9 9")}, -1},
		"a new node":                      {[]string{series("a", "- - - - 9 9 9 9 9")}, -1},
		"not scraped any more":            {[]string{series("a", "9 9 9 9 - - - - -")}, -1},
		"not scraped for a while":         {[]string{series("a", "9 9 - - - - - 9 9")}, 9},
		"scraped once a minute":           {[]string{series("a", "- - - 8 - - - 9 -")}, 8},
		"not a number is no value":        {[]string{series("a", "9 9 9 9 NaN NaN NaN NaN +Inf")}, -1},
		"below 0 is no value":             {[]string{series("a", "9 9 9 9 -1 9 9 9 9")}, 9},
		"below 0 only":                    {[]string{series("a", "-1 -1 -1 -1 -1 -1 -1 -1 -1")}, -1},
		"two exporters":                   {[]string{series("a", "9 9 9 9 9 9 9 9 9"), series("a:9100", "8 8 8 8 8 8 8 8 8")}, 8},
		"two exporters, the other first":  {[]string{series("a:9100", "8 8 8 8 8 8 8 8 8"), series("a", "9 9 9 9 9 9 9 9 9")}, 8},
		"an exporter that was replaced":   {[]string{series("a:9100", "9 9 9 9 - - - - -"), series("a", "- - - - - 8 8 8 8")}, 8},
		"by address":                      {[]string{series("10.0.0.1", "7 7 7 7 7 7 7 7 7")}, 7},
		"by address with a port":          {[]string{series("10.0.0.1:9100", "7 7 7 7 7 7 7 7 7")}, 7},
		"by an address of version 6":      {[]string{series("[fd00::1]:9100", "7 7 7 7 7 7 7 7 7")}, 7},
		"by an address of two nodes":      {[]string{series("10.9.9.9:9100", "7 7 7 7 7 7 7 7 7")}, -1},
		"a name goes before an address":   {[]string{series("10.0.0.7", "7 7 7 7 7 7 7 7 7")}, -1},
		"no label":                        {[]string{series("", "7 7 7 7 7 7 7 7 7")}, -1},
		"a value that is no time of ours": {[]string{strings.Replace(series("a", "7 7 7 7 7 7 7 7 7"), `"values":[`, `"values":[[1,"0"],`, 1)}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, matrix(c.series...)) })
			nodes := []*corev1.Node{object("a", addressed("10.0.0.1", "fd00::1", "10.9.9.9", "10.0.0.7")), object("b", addressed("10.0.0.2", "10.9.9.9")), object("10.0.0.7")}
			loads, _ := s.Loads(t.Context(), nodes, noon)
			load, known := loads["a"]
			require.Equal(t, c.load >= 0, known, "%v", loads)
			require.NotContains(t, loads, "b")
			if known {
				require.InDelta(t, c.load, load, 0)
			}
		})
	}
}

// A partial answer is used, and the error names the problem and the flag to check.
func TestSourceLoads_ReportsIncompleteAnswers(t *testing.T) {
	all := series("a", "9 9 9 9 9 9 9 9 9")
	for name, c := range map[string]struct {
		answer, want string
		known        int
	}{
		"complete":         {matrix(all), "", 1},
		"others, too":      {matrix(all, series("elsewhere", "1 1 1 1 1 1 1 1 1")), "", 1},
		"nothing":          {matrix(), "--node-load-metric=node_load1: no series in Prometheus", 0},
		"none of ours":     {matrix(series("elsewhere", "9 9 9 9 9 9 9 9 9")), "--node-load-label=instance: none of 1 series has the name or an address of a node", 0},
		"one that is odd":  {matrix(all, `{"metric":{"instance":7},"values":[[1,"1"]]}`), "failed to parse 1 series, such as: ", 1},
		"a store is away":  {strings.Replace(matrix(all), `{"status"`, `{"warnings":["a store is away"],"status"`, 1), "response may be incomplete: a store is away", 1},
		"no answer":        {`<html>`, "invalid character", 0},
		"half an answer":   {strings.TrimSuffix(matrix(all), "]}}"), "truncated response: unexpected EOF", 0},
		"a bad expression": {`{"status":"error","errorType":"bad_data","error":"parse error"}`, "Prometheus rejected the query (bad_data): parse error", 0},
		"not over time":    {`{"status":"success","data":{"resultType":"scalar","result":[1772438400,"0.9"]}}`, "returned a scalar: must return series over time (a matrix)", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.answer) })
			loads, err := s.Loads(t.Context(), []*corev1.Node{object("a")}, noon)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
			require.Len(t, loads, c.known)
		})
	}
}

func TestSourceLoads_UsesConfiguredLabel(t *testing.T) {
	c := DefaultConfig()
	c.Metric, c.Label = `max by (node) (node_load1{cluster="a"})`, "node"
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, `min by (node) (max by (node) (node_load1{cluster="a"}))`, r.FormValue("query"))
		fmt.Fprint(w, matrix(strings.Replace(series("a", "3 3 3 3 3 3 3 3 3"), `"instance"`, `"node"`, 1)))
	}))
	defer server.Close()
	loads, err := newSourceFor(t, server.URL, c).Loads(t.Context(), []*corev1.Node{object("a")}, noon)
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"a": 3}, loads)
}

func TestSourceLoads_IgnoresUnrelatedSeries(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, matrix(series(strings.Repeat("x", 2<<20), "1 1 1 1 1 1 1 1 1"), series("a", "9 9 9 9 9 9 9 9 9")))
	})
	loads, err := s.Loads(t.Context(), []*corev1.Node{object("a")}, noon)
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"a": 9}, loads)
}

func TestSourceLoads_BoundsAnswerSize(t *testing.T) {
	others := make([]string, 17)
	for i := range others {
		others[i] = series(strings.Repeat("x", 1<<20), "1")
	}
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, matrix(others...)) })
	_, err := s.Loads(t.Context(), nil, noon)
	var large *prometheus.TooLargeError
	require.ErrorAs(t, err, &large)
}
