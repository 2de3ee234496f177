package rollouts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/pkg/testkit"
)

var changed = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

func serveSource(t *testing.T, handle http.HandlerFunc) *EvidenceSource {
	t.Helper()
	server := httptest.NewServer(testkit.StrictPrometheus(t, handle))
	t.Cleanup(server.Close)
	return source(t, server.URL)
}

func source(t *testing.T, address string) *EvidenceSource { return sourceOf(t, process.OS{}, address) }

func sourceOf(t *testing.T, env process.Environment, address string) *EvidenceSource {
	t.Helper()
	c := DefaultEvidenceConfig()
	c.Address = address
	require.NoError(t, c.Validate())
	s, err := NewEvidenceSource(env, c)
	require.NoError(t, err)
	return s
}

// containerSeries returns a series of a container as in a response. Labels are name=value, and the value is
// JSON.
func containerSeries(counter, pod, container, value string, labels ...string) string {
	all := map[string]string{"loadline_counter": counter, "namespace": "shop", "pod": pod, "container": container, "id": "/kubepods/1", "job": "cadvisor"}
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		all[name] = value
	}
	text, _ := json.Marshal(all)
	return fmt.Sprintf(`{"metric":%s,"value":[1772438400,%s]}`, text, value)
}

func periods(value string, labels ...string) string {
	return containerSeries(periodsMetric, "web-0", "app", value, labels...)
}

func throttled(value string, labels ...string) string {
	return containerSeries(throttledMetric, "web-0", "app", value, labels...)
}

func waiting(value string, labels ...string) string {
	return waitingFrom("web-0", "app", value, labels...)
}

// waitingFrom returns the two series of a container that existed for the whole window.
func waitingFrom(pod, container, value string, labels ...string) string {
	return containerSeries(waitingMetric, pod, container, value, labels...) + "," + containerSeries(fullWindowWaiting, pod, container, value, labels...)
}

func vector(series ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`
}

// requireShare compares shares, with NaN for unknown values.
func requireShare(t *testing.T, throttled, waiting float64, got CPUPressure) {
	t.Helper()
	for _, c := range []struct {
		name      string
		want, got float64
	}{
		{name: "throttled", want: throttled, got: got.Throttled},
		{name: "waiting", want: waiting, got: got.Waiting},
	} {
		if math.IsNaN(c.want) {
			require.True(t, math.IsNaN(c.got), "%s: %v", c.name, c.got)
		} else {
			require.InDelta(t, c.want, c.got, 1e-9, c.name)
		}
	}
}

var unknown = math.NaN()

func TestCPUPressure_OneQueryCoversAllContainers(t *testing.T) {
	var asked []string
	s := serveSource(t, func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseForm())
		require.Equal(t, "/api/v1/query", r.URL.Path)
		require.Equal(t, "1772438400", r.Form.Get("time"))
		require.Equal(t, "10s", r.Form.Get("timeout"))
		asked = append(asked, r.Form.Get("query"))
		fmt.Fprint(w, vector(
			containerSeries(periodsMetric, "web-0", "app", `"10"`), containerSeries(throttledMetric, "web-0", "app", `"6"`), waitingFrom("web-0", "app", `"0.25"`),
			containerSeries(periodsMetric, "web-0", "log", `"10"`), containerSeries(throttledMetric, "web-0", "log", `"0"`),
			waitingFrom("web.1", "app", `"1.02"`),
			containerSeries(periodsMetric, "web-2", "app", `"10"`), containerSeries(throttledMetric, "web-2", "app", `"10"`),
			waitingFrom("web-0", "app", `"0.9"`, "namespace=other"),
			waitingFrom("web-0", "", `"0.9"`),
		))
	})
	shares, err := s.CPUPressure(t.Context(), "shop", []string{"web.1", "web-0", "web.1"}, changed)
	require.NoError(t, err)
	const selector = `{pod=~".+", container!="POD", container!="", namespace="shop", pod=~"web-0|web\\.1"}`
	require.Equal(t, []string{
		`label_replace(rate(container_cpu_cfs_periods_total` + selector + `[5m]), "loadline_counter", "container_cpu_cfs_periods_total", "", "") or ` +
			`label_replace(rate(container_cpu_cfs_throttled_periods_total` + selector + `[5m]), "loadline_counter", "container_cpu_cfs_throttled_periods_total", "", "") or ` +
			`label_replace(rate(container_pressure_cpu_waiting_seconds_total` + selector + `[5m]), "loadline_counter", "container_pressure_cpu_waiting_seconds_total", "", "") or ` +
			`label_replace(rate(container_pressure_cpu_waiting_seconds_total` + selector + `[5m]) and container_pressure_cpu_waiting_seconds_total` + selector + ` offset 5m, ` +
			`"loadline_counter", "container_pressure_cpu_waiting_seconds_total from the start of the window", "", "")`,
	}, asked)
	require.Len(t, shares, 3, "neither another pod, nor another namespace, nor the sum of a pod: %v", shares)
	requireShare(t, 0.6, 0.25, PressureOf(shares, "web-0", "app"))
	requireShare(t, 0, unknown, PressureOf(shares, "web-0", "log"))
	requireShare(t, unknown, 1, PressureOf(shares, "web.1", "app"))
	requireShare(t, unknown, unknown, PressureOf(shares, "web-2", "app"))
}

func TestCPUPressure_AmbiguousSeriesAreUnknown(t *testing.T) {
	for _, tc := range []struct {
		name               string
		series             []string
		throttled, waiting float64
		fails              string
	}{
		{name: "no series", throttled: unknown, waiting: unknown},
		{name: "no periods", series: []string{throttled(`"6"`), waiting(`"0.2"`)}, throttled: unknown, waiting: 0.2},
		{name: "only periods", series: []string{periods(`"10"`), waiting(`"0.2"`)}, throttled: unknown, waiting: 0.2},
		{name: "idle", series: []string{periods(`"0"`), throttled(`"0"`)}, throttled: unknown, waiting: unknown},
		{name: "more than all periods", series: []string{periods(`"10"`), throttled(`"13"`), waiting(`"7"`)}, throttled: unknown,
			waiting: unknown},
		{name: "throttled without periods", series: []string{periods(`"0"`), throttled(`"13"`)}, throttled: unknown, waiting: unknown},
		{name: "negative values", series: []string{periods(`"10"`), throttled(`"-1"`), waiting(`"-0.1"`)}, throttled: unknown,
			waiting: unknown},
		{name: "NaN", series: []string{periods(`"NaN"`), throttled(`"1"`), waiting(`"NaN"`)}, throttled: unknown, waiting: unknown},
		{name: "infinite values", series: []string{periods(`"10"`), throttled(`"+Inf"`), waiting(`"+Inf"`)}, throttled: unknown,
			waiting: unknown},
		{name: "another counter", series: []string{containerSeries("up", "web-0", "app", `"1"`), waiting(`"0.2"`)}, throttled: unknown,
			waiting: 0.2},
		{name: "restarted container",
			series: []string{periods(`"2"`), throttled(`"1"`), periods(`"8"`, "id=/2", "name=b", "image=new"),
				throttled(`"6"`, "id=/2", "name=b", "image=new")},
			throttled: 0.7, waiting: unknown},
		{name: "waiting of a restarted container", series: []string{waiting(`"0.2"`), waiting(`"0.2"`, "id=/2")}, throttled: unknown,
			waiting: unknown},
		{name: "young container", series: []string{containerSeries(waitingMetric, "web-0", "app", `"0.2"`)}, throttled: unknown,
			waiting: unknown},
		{name: "young container after a restart",
			series: []string{waiting(`"0.2"`), containerSeries(waitingMetric, "web-0", "app", `"0.2"`, "id=/2")}, throttled: unknown,
			waiting: unknown},
		{name: "half of a restart", series: []string{periods(`"10"`), throttled(`"1"`), throttled(`"6"`, "id=/2")}, throttled: unknown,
			waiting: unknown},
		{name: "two jobs",
			series: []string{periods(`"10"`), throttled(`"6"`), waiting(`"0.2"`),
				periods(`"10"`, "job=b"), throttled(`"6"`, "job=b"), waiting(`"0.2"`, "job=b")},
			throttled: unknown, waiting: unknown},
		{name: "two jobs with one metric each", series: []string{periods(`"10"`), throttled(`"6"`, "job=b")}, throttled: unknown,
			waiting: unknown},
		{name: "two clusters", series: []string{waiting(`"0.2"`, "cluster=a"), periods(`"10"`, "cluster=b"), throttled(`"6"`, "cluster=b")},
			throttled: unknown, waiting: unknown},
		{name: "number as a label", series: []string{periods(`"10"`), throttled(`"6"`), `{"metric":{"pod":7},"value":[1,"1"]}`},
			throttled: 0.6, waiting: unknown, fails: "failed to parse 1 series, such as: "},
		{name: "number as a value", series: []string{periods(`"10"`), throttled(`6`), waiting(`"0.2"`)}, throttled: unknown, waiting: 0.2,
			fails: "failed to parse 1 series, such as: "},
		{name: "text as a value", series: []string{waiting(`"much"`)}, throttled: unknown, waiting: unknown,
			fails: "failed to parse 2 series, such as: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serveSource(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, vector(tc.series...)) })
			shares, err := s.CPUPressure(t.Context(), "shop", []string{"web-0"}, changed)
			if tc.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.fails)
			}
			requireShare(t, tc.throttled, tc.waiting, PressureOf(shares, "web-0", "app"))
		})
	}
}

func TestCPUPressure_FailureReturnsNoResults(t *testing.T) {
	series := throttled(`"0.9"`) + "," + periods(`"1"`)
	for _, tc := range []struct{ name, want, answer string }{
		{name: "list", want: "must be an object: check that the server is Prometheus", answer: `[]`},
		{name: "HTML", want: "invalid character", answer: `<html>`},
		{name: "truncated response", want: "truncated response", answer: strings.TrimSuffix(vector(series), "]}}")},
		{name: "scalar", want: "returned a scalar: must return series",
			answer: `{"status":"success","data":{"resultType":"scalar","result":[1772438400,"0.9"]}}`},
		{name: "matrix", want: "unexpected result type matrix, expected vector",
			answer: `{"status":"success","data":{"resultType":"matrix","result":[` +
				strings.NewReplacer(`"value":[`, `"values":[[`, `]}`, `]]}`).Replace(series) + `]}}`},
		{name: "warning", want: "result may be incomplete: a store is away",
			answer: strings.Replace(vector(series), `{"status"`, `{"warnings":["a store is away"],"status"`, 1)},
		{name: "rejected query", want: "too many samples", answer: `{"status":"error","errorType":"execution","error":"too many samples"}`},
		{name: "status is a number", want: "cannot unmarshal number into Go value of type s", answer: `{"status":7}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serveSource(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tc.answer) })
			shares, err := s.CPUPressure(t.Context(), "shop", []string{"web-0"}, changed)
			require.ErrorContains(t, err, "query CPU pressure of 1 pods of namespace shop starting with web-0: ", tc.answer)
			require.ErrorContains(t, err, tc.want, tc.answer)
			require.Empty(t, shares, tc.answer)
		})
	}
	server := httptest.NewServer(nil)
	server.Close()
	shares, err := source(t, server.URL).CPUPressure(t.Context(), "shop", []string{"web-0"}, changed)
	require.ErrorContains(t, err, "refused")
	require.NotNil(t, shares)
	requireShare(t, unknown, unknown, PressureOf(shares, "web-0", "app"))
}

func podNames(n int) (pods []string) {
	for i := range n {
		pods = append(pods, fmt.Sprintf("web-%03d", i))
	}
	return pods
}

func queriedPods(r *http.Request) []string {
	_, list, _ := strings.Cut(r.FormValue("query"), `namespace="shop", pod=~"`)
	list, _, _ = strings.Cut(list, `"`)
	return strings.Split(list, "|")
}

func TestCPUPressure_BatchesOfHundredFailSeparately(t *testing.T) {
	var sizes []int
	s := serveSource(t, func(w http.ResponseWriter, r *http.Request) {
		pods := queriedPods(r)
		if sizes = append(sizes, len(pods)); len(sizes) == 2 {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		var all []string
		for _, pod := range pods {
			all = append(all, waitingFrom(pod, "app", `"0.4"`))
		}
		fmt.Fprint(w, vector(all...))
	})
	shares, err := s.CPUPressure(t.Context(), "shop", podNames(250), changed)
	require.ErrorContains(t, err, "query CPU pressure of 100 pods of namespace shop starting with web-100: ")
	require.NotContains(t, err.Error(), "web-000")
	require.NotContains(t, err.Error(), "web-200")
	require.Equal(t, []int{100, 100, 50}, sizes)
	require.Len(t, shares, 150)
	for pod, want := range map[string]float64{"web-000": 0.4, "web-099": 0.4, "web-100": unknown, "web-199": unknown, "web-249": 0.4} {
		requireShare(t, unknown, want, PressureOf(shares, pod, "app"))
	}
}

func TestCPUPressure_StopsAfterServerError(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusInternalServerError, http.StatusTooManyRequests} {
		n := 0
		s := serveSource(t, func(w http.ResponseWriter, _ *http.Request) {
			n++
			w.WriteHeader(code)
		})
		_, err := s.CPUPressure(t.Context(), "shop", podNames(250), changed)
		require.ErrorContains(t, err, fmt.Sprint(code))
		require.Equal(t, 1, n)
	}
}

func TestCPUPressure_BoundsResponseSize(t *testing.T) {
	million := func(w io.Writer) (sent int) {
		for i := range 1_000_000 {
			n, err := io.WriteString(w, waiting(`"0.9"`, "container=c"+fmt.Sprint(i))+",")
			if sent += n; err != nil {
				break
			}
		}
		return sent
	}
	endless := func(w io.Writer) (sent int) {
		_, _ = io.WriteString(w, `{"metric":{"pod":"`)
		for block := strings.Repeat("x", 1<<16); sent < 1<<29; {
			n, err := io.WriteString(w, block)
			if sent += n; err != nil {
				break
			}
		}
		return sent
	}
	for _, tc := range []struct {
		name  string
		want  string
		write func(io.Writer) int
	}{
		{name: "too many series", want: "the response exceeds 20000 series", write: million},
		{name: "endless series", want: "the response exceeds 1048576 bytes in one series", write: endless},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sent := make(chan int, 1)
			s := serveSource(t, func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, strings.TrimSuffix(vector(periods(`"10"`), throttled(`"6"`)), "]}}")+",")
				sent <- tc.write(w)
			})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			shares, err := s.CPUPressure(t.Context(), "shop", []string{"web-0"}, changed)
			runtime.GC()
			runtime.ReadMemStats(&after)
			require.ErrorContains(t, err, tc.want)
			require.Empty(t, shares, "of a part nobody knows what the rest would say")
			require.Less(t, <-sent, 64<<20)
			require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(16<<20))
		})
	}
}

// pipes is an in-memory network for tests in virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.IPAddr{} }

type memoryEnvironment struct {
	process.OS

	network pipes
}

func (m memoryEnvironment) Dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	m.network <- theirs
	return ours, nil
}

// inVirtualTime runs a test with a source and an in-memory server that answers with handle.
func inVirtualTime(t *testing.T, handle http.HandlerFunc, test func(*testing.T, *EvidenceSource)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := make(pipes)
		server := &http.Server{Handler: handle}
		go func() { _ = server.Serve(network) }()
		defer server.Close()
		defer close(network)
		test(t, sourceOf(t, memoryEnvironment{network: network}, "http://prometheus.test"))
	})
}

func TestCPUPressure_HangingServerTimesOutOnce(t *testing.T) {
	for name, begin := range map[string]string{"silent": "", "in the middle": strings.TrimSuffix(vector(waiting(`"0.9"`)), "]}}")} {
		t.Run(name, func(t *testing.T) {
			n := 0
			inVirtualTime(t, func(w http.ResponseWriter, r *http.Request) {
				n++
				_ = r.ParseForm()
				if begin != "" {
					_, _ = io.WriteString(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			}, func(t *testing.T, s *EvidenceSource) {
				start := time.Now()
				shares, err := s.CPUPressure(t.Context(), "shop", append(podNames(250), "web-0"), changed)
				require.ErrorIs(t, err, prometheus.ErrTimeout)
				require.ErrorContains(t, err, "starting with web-0: ")
				require.ErrorContains(t, err, "within 10s (--prometheus-query-timeout)")
				require.NotContains(t, err.Error(), "\n", "once is enough")
				require.Empty(t, shares)
				require.Equal(t, 10*time.Second, time.Since(start))
				require.Equal(t, 1, n)
			})
		})
	}
}

// Answers received before the deadline count.
func TestCPUPressure_AllQueriesShareTimeout(t *testing.T) {
	inVirtualTime(t, func(w http.ResponseWriter, r *http.Request) {
		pods := queriedPods(r)
		select {
		case <-time.After(4 * time.Second):
		case <-r.Context().Done():
		}
		fmt.Fprint(w, vector(waitingFrom(pods[0], "app", `"0.4"`)))
	}, func(t *testing.T, s *EvidenceSource) {
		start := time.Now()
		shares, err := s.CPUPressure(t.Context(), "shop", podNames(1000), changed)
		require.ErrorIs(t, err, prometheus.ErrTimeout)
		require.ErrorContains(t, err, "starting with web-200: ")
		require.Equal(t, 10*time.Second, time.Since(start))
		for pod, want := range map[string]float64{"web-000": 0.4, "web-100": 0.4, "web-200": unknown} {
			requireShare(t, unknown, want, PressureOf(shares, pod, "app"))
		}
	})
}

func TestCPUPressure_StopsOnCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serveSource(t, func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		cancel()
		<-r.Context().Done()
	})
	_, err := s.CPUPressure(ctx, "shop", podNames(250), changed)
	require.ErrorIs(t, err, context.Canceled)
}

func TestCPUPressure_RejectsInvalidNames(t *testing.T) {
	var queries []string
	s := serveSource(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.FormValue("query"))
		fmt.Fprint(w, vector(waiting(`"0.4"`)))
	})
	hostile := []string{`x"} or up{a="`, `.*`, `a|b`, "", `web\0`, "Web", "a\nb", "ü", strings.Repeat("a", 254), "..", "-a", "a-"}
	shares, err := s.CPUPressure(t.Context(), "shop", append(hostile, "web-0"), changed)
	for _, name := range hostile {
		require.ErrorContains(t, err, fmt.Sprintf("query CPU pressure: invalid pod name %.100q: ", name))
	}
	require.Len(t, queries, 1)
	require.Contains(t, queries[0], `pod=~"web-0"}`)
	requireShare(t, unknown, 0.4, PressureOf(shares, "web-0", "app"))

	for _, namespace := range []string{`shop"} or up{a="`, "", "a.b", ".*", "Shop"} {
		shares, err := s.CPUPressure(t.Context(), namespace, []string{"web-0"}, changed)
		require.ErrorContains(t, err, fmt.Sprintf("query CPU pressure: invalid namespace %q: ", namespace))
		require.Empty(t, shares)
	}
	_, err = s.CPUPressure(t.Context(), "shop", hostile, changed)
	require.Error(t, err)
	_, err = s.CPUPressure(t.Context(), "shop", nil, changed)
	require.NoError(t, err)
	require.Len(t, queries, 1, "nothing to ask for")
}

func TestCPUPressure_UsesConfiguredLabelsAndJob(t *testing.T) {
	c := DefaultEvidenceConfig()
	c.Job, c.NamespaceLabel, c.PodLabel, c.ContainerLabel, c.BearerToken = "kubernetes-cadvisor", "ns", "pod_name", "name", "secret"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		require.Contains(t, r.FormValue("query"), `{job="kubernetes-cadvisor", pod_name=~".+", name!="POD", name!="", ns="shop", pod_name=~"web-0"}`)
		fmt.Fprint(w, vector(`{"metric":{"loadline_counter":"container_cpu_cfs_periods_total","ns":"shop","pod_name":"web-0","name":"app"},"value":[1,"10"]}`,
			`{"metric":{"loadline_counter":"container_cpu_cfs_throttled_periods_total","ns":"shop","pod_name":"web-0","name":"app"},"value":[1,"3"]}`))
	}))
	defer server.Close()
	c.Address = server.URL
	s, err := NewEvidenceSource(process.OS{}, c)
	require.NoError(t, err)
	shares, err := s.CPUPressure(t.Context(), "shop", []string{"web-0"}, changed)
	require.NoError(t, err)
	requireShare(t, 0.3, unknown, PressureOf(shares, "web-0", "app"))
}

func TestEvidenceConfig_Validate(t *testing.T) {
	for _, tc := range []struct {
		name string
		want string
		set  func(*EvidenceConfig)
	}{
		{name: "address without a scheme", want: "--prometheus-address: prometheus:9090 must be a URL",
			set: func(c *EvidenceConfig) { c.Address = "prometheus:9090" }},
		{name: "invalid timeout", want: "--prometheus-query-timeout=soon: must be",
			set: func(c *EvidenceConfig) { c.QueryTimeout = "soon" }},
		{name: "timeout of zero", want: "--prometheus-query-timeout=0s: must be", set: func(c *EvidenceConfig) { c.QueryTimeout = "0s" }},
		{name: "timeout above the maximum", want: "--prometheus-query-timeout=61s: must be at most 1m",
			set: func(c *EvidenceConfig) { c.QueryTimeout = "61s" }},
		{name: "invalid namespace label", want: "--container-namespace-label=a-b: must be the name",
			set: func(c *EvidenceConfig) { c.NamespaceLabel = "a-b" }},
		{name: "empty pod label", want: "--container-pod-name-label=: must be the name", set: func(c *EvidenceConfig) { c.PodLabel = "" }},
		{name: "invalid container label", want: `--container-name-label=a="x": must be the name`,
			set: func(c *EvidenceConfig) { c.ContainerLabel = `a="x"` }},
		{name: "user name and token", want: "--username=u: excludes a bearer token",
			set: func(c *EvidenceConfig) { c.Username, c.BearerToken = "u", "t" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := DefaultEvidenceConfig()
			c.Address = "http://prometheus.monitoring.svc"
			require.NoError(t, c.Validate())
			tc.set(&c)
			require.ErrorContains(t, c.Validate(), tc.want)
		})
	}
	c := DefaultEvidenceConfig()
	c.QueryTimeout, c.PodLabel = "soon", ""
	require.NoError(t, c.Validate(), "nobody is asked")
	c.Username, c.BearerToken = "u", "t"
	require.Error(t, c.Validate())
	_, err := NewEvidenceSource(process.OS{}, c)
	require.ErrorContains(t, err, "must be a URL")
}
