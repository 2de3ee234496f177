package prometheus

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

func TestReadArchive_ReturnsRecordings(t *testing.T) {
	f := newFake(t)
	minutes := func(at time.Time) float64 { return at.Sub(start).Minutes() }
	f.usage("shop", "web-7d9f8b6c5d-x2k4p", "app",
		func(at time.Time) string { return strconv.FormatFloat(0.1+minutes(at)/1000, 'f', -1, 64) },
		func(at time.Time) string { // absent in the first quarter of an hour
			if minutes(at) < 15 {
				return ""
			}
			return strconv.Itoa(1000 * int(minutes(at)))
		})
	f.add("kube_pod_container_resource_requests", always("0.25"), "namespace", "shop", "pod", "web-7d9f8b6c5d-x2k4p", "container", "app", "resource", "cpu")
	f.add("kube_pod_container_resource_limits", func(at time.Time) string { return strconv.Itoa(5000 + int(minutes(at))) },
		"namespace", "shop", "pod", "web-7d9f8b6c5d-x2k4p", "container", "app", "resource", "memory")
	q := hour()
	q.MinMemory = 20_000
	found, problems := f.read(q)
	require.Empty(t, problems)
	require.Equal(t, []string{"shop/web web-7d9f8b6c5d-x2k4p/app"}, seriesNames(found))
	r := found[0]
	require.Len(t, r.At, 13)
	require.Equal(t, start.Add(5*time.Minute).UnixNano(), r.At[1])
	require.InDelta(t, 105, r.Use[resources.CPU][1], 1e-9)
	require.True(t, math.IsNaN(r.Use[resources.Memory][2]))
	require.Equal(t, []float64{20_000, 20_000, 25_000}, r.Use[resources.Memory][3:6], "raised to the least")
	require.Equal(t, resources.List{}.With(resources.CPU, 250), r.Requests)
	require.Equal(t, resources.List{}.With(resources.Memory, 5000), r.Limits, "the first")
	require.NotEmpty(t, r.Class)
	require.Equal(t, `max without (id, name, image, instance, node) (rate(cpu_total{pod=~".+", container!="POD", container!="", namespace="shop", pod=~"web-7d9f8b6c5d-x2k4p"}[5m]))`, f.queries[0].query)
	require.Equal(t, `max without (id, name, image, instance, node) (max_over_time(memory_bytes{pod=~".+", container!="POD", container!="", namespace="shop", pod=~"web-7d9f8b6c5d-x2k4p"}[5m]))`, f.queries[1].query)
}

// The waiting time is queried only if it is requested and the server has the metric.
func TestReadArchive_WaitingTime(t *testing.T) {
	f := newFake(t)
	f.container("ns", "web-0", "app")
	f.container("ns", "web-1", "app")
	f.add("waiting_total", func(at time.Time) string { return map[bool]string{true: "1.01"}[at.After(start.Add(30*time.Minute))] },
		"namespace", "ns", "pod", "web-0", "container", "app")
	q := hour()
	found, problems := f.read(q)
	require.Empty(t, problems)
	require.Nil(t, found[0].Waiting)
	q.Waiting = "other_total"
	f.queries = nil
	_, problems = f.read(q)
	require.Empty(t, problems)
	require.Len(t, f.queries, 4)
	q.Waiting = "waiting_total"
	found, problems = f.read(q)
	require.Empty(t, problems)
	require.Len(t, found[0].Waiting, 13)
	require.True(t, math.IsNaN(found[0].Waiting[6]))
	require.Equal(t, 1.0, found[0].Waiting[7])
	require.Nil(t, found[1].Waiting)
	require.Contains(t, f.queries[6].query, `max without (id, name, image, instance, node) (rate(waiting_total{`)
}

func TestReadArchive_WorkloadsFromOwnersOrPodNames(t *testing.T) {
	f := newFake(t)
	for _, pod := range []string{"web-7d9f8b6c5d-x2k4p", "bare-7d9f8b6c5d-x2k4p", "odd-name", "db-0", "nightly-28912345-x2k4p", "lone", "proxy-node7", "gone-6c5d8b7d9f-zzzzz"} {
		f.container("b", pod, "app")
	}
	f.container("a-b", "x", "app")
	f.container("a", "z", "app")
	own := func(metric, label, name, kind, owner string, more ...string) {
		f.add(metric, always("1"), append([]string{"namespace", "b", label, name, "owner_kind", kind, "owner_name", owner}, more...)...)
	}
	own("kube_pod_owner", "pod", "web-7d9f8b6c5d-x2k4p", "ReplicaSet", "front-7d9f8b6c5d")
	own("kube_replicaset_owner", "replicaset", "front-7d9f8b6c5d", "Deployment", "front")
	own("kube_pod_owner", "pod", "bare-7d9f8b6c5d-x2k4p", "ReplicaSet", "bare-7d9f8b6c5d")
	own("kube_replicaset_owner", "replicaset", "bare-7d9f8b6c5d", "<none>", "<none>")
	own("kube_pod_owner", "pod", "odd-name", "<none>", "<none>")
	own("kube_pod_owner", "pod", "odd-name", "StatefulSet", "second")
	own("kube_pod_owner", "pod", "odd-name", "StatefulSet", "first")
	own("kube_pod_owner", "pod", "odd-name", "StatefulSet", "adopter", "owner_is_controller", "false")
	own("kube_pod_owner", "pod", "nightly-28912345-x2k4p", "Job", "nightly-28912345")
	own("kube_job_owner", "job_name", "nightly-28912345", "CronJob", "every-night")
	own("kube_pod_owner", "pod", "proxy-node7", "Node", "node7")
	found, problems := f.read(hour())
	require.Empty(t, problems)
	require.Equal(t, []string{
		"a/z z/app", "a-b/x x/app",
		"b/bare-7d9f8b6c5d bare-7d9f8b6c5d-x2k4p/app", "b/db db-0/app", "b/every-night nightly-28912345-x2k4p/app", "b/first odd-name/app",
		"b/front web-7d9f8b6c5d-x2k4p/app", "b/gone gone-6c5d8b7d9f-zzzzz/app", "b/lone lone/app", "b/proxy proxy-node7/app",
	}, seriesNames(found))
	slices.Reverse(f.series)
	again, _ := f.read(hour())
	require.Equal(t, seriesNames(found), seriesNames(again), "whatever order the server has")
}

func TestReadArchive_ReportsInvalidSeries(t *testing.T) {
	at := func(minute int, value string) func(time.Time) string {
		return func(now time.Time) string {
			if now.Sub(start) == time.Duration(minute)*time.Minute {
				return value
			}
			return "7"
		}
	}
	for _, tc := range []struct {
		name        string
		cpu, memory func(time.Time) string
		want        string
		used        bool
	}{
		{
			name: "not a number", cpu: at(10, "NaN"), memory: always("1"),
			want: "column cpu_cores: ns/bad/app: is NaN, the first of 1 such, at 2026-03-02T08:10:00Z: " +
				"expected a number, or no sample if unknown",
		},
		{
			name: "infinite", cpu: always("1"), memory: always("+Inf"),
			want: "column memory_bytes: ns/bad/app: is +Inf, the first of 13 such, at 2026-03-02T08:00:00Z: expected a number",
		},
		{
			name: "negative", cpu: at(25, "-0.5"), memory: always("1"),
			want: "column cpu_cores: ns/bad/app: is -0.5 at 2026-03-02T08:25:00Z: expected 0 or more",
		},
		{name: "text", cpu: at(5, `"much"`), memory: always("1"), want: `column cpu_cores: ns/bad/app: cannot be read: `},
		{name: "list", cpu: at(5, `[]`), memory: always("1"), want: `column cpu_cores: ns/bad/app: cannot be read: `},
		{
			name: "gap",
			cpu: func(now time.Time) string {
				if m := now.Sub(start).Minutes(); m > 10 && m < 45 {
					return ""
				}
				return "1"
			},
			memory: always(""),
			want: "column timestamp: ns/bad/app: 1 gaps, the longest of 35m0s: expected a sample every 5m0s; " +
				"totals exclude gaps (used nevertheless)",
			used: true,
		},
		{
			name:   "too short",
			cpu:    func(now time.Time) string { return map[bool]string{true: "1"}[now.Equal(start)] },
			memory: always(""),
			want: "skipped 1 short-lived containers: expected at least two samples, 5m0s apart; " +
				"a finer --history-resolution includes more of them",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t)
			f.container("ns", "before", "app")
			f.usage("ns", "bad-0", "app", tc.cpu, tc.memory)
			f.container("ns", "later", "app")
			found, problems := f.read(hour())
			require.Len(t, problems, 1)
			require.Contains(t, strings.ReplaceAll(problems[0], "ns/bad/bad-0/app", "ns/bad/app"), tc.want)
			want := []string{"ns/before before/app", "ns/later later/app"}
			if tc.used {
				want = slices.Insert(want, 0, "ns/bad bad-0/app")
			}
			require.Equal(t, want, seriesNames(found))
		})
	}
}

func TestReadArchive_IsolatesFailingContainer(t *testing.T) {
	for _, tc := range []struct {
		name  string
		want  string
		spoil func(w http.ResponseWriter, r *http.Request)
	}{
		{name: "server error", want: "(500, Internal Server Error)",
			spoil: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }},
		{name: "rejected query", want: "(422, execution): too many samples", spoil: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"status":"error","errorType":"execution","error":"too many samples"}`)
		}},
		{name: "truncated response", want: "truncated response", spoil: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},`)
		}},
		{name: "internal error", want: "(internal): index", spoil: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"status":"error","errorType":"internal","error":"index"}`)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t)
			for i := range 60 {
				f.container("ns", fmt.Sprintf("web-%d", i), "app")
			}
			f.spoil = func(w http.ResponseWriter, r *http.Request, a rangeQuery) bool {
				bad := slices.Contains(a.pods, "web-41") && strings.Contains(a.query, "memory_bytes")
				if bad {
					tc.spoil(w, r)
				}
				return bad
			}
			found, problems := f.read(hour())
			require.Len(t, found, 59)
			require.Len(t, problems, 1)
			require.Contains(t, problems[0], "column memory_bytes: ns/web/web-41/app: from 2026-03-02T08:00:00Z to 2026-03-02T09:00:00Z: ")
			require.Contains(t, problems[0], tc.want)
		})
	}
}

func TestReadArchive_RetriesTransientErrors(t *testing.T) {
	f := newFake(t)
	f.container("ns", "web-0", "app")
	failures := 2
	f.spoil = func(w http.ResponseWriter, _ *http.Request, _ rangeQuery) bool {
		if failures--; failures >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return failures >= 0
	}
	found, problems := f.read(hour())
	require.Empty(t, problems)
	require.Len(t, found, 1)
}

// An overloaded server gets time and no additional queries.
func TestReadArchive_HonorsRetryAfter(t *testing.T) {
	f := newFake(t)
	for i := range 4 {
		f.container("ns", fmt.Sprintf("web-%d", i), "app")
	}
	failures := 6
	f.spoil = func(w http.ResponseWriter, _ *http.Request, _ rangeQuery) bool {
		if failures--; failures == 0 {
			w.Header().Set("Retry-After", "1")
		}
		if failures >= 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		return failures >= 0
	}
	began := time.Now()
	found, problems := f.read(hour())
	require.Empty(t, problems)
	require.Len(t, found, 4)
	require.GreaterOrEqual(t, time.Since(began), time.Second, "it has said how long")
	for _, q := range f.queries {
		require.Len(t, q.pods, 4, "halves are no less to do")
	}
	failures, f.queries = 1000, nil
	found, problems = f.read(hour())
	require.Empty(t, found)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "(429, Too Many Requests)")
	require.Contains(t, problems[0], "; 4 containers are not read")
	require.Len(t, f.queries, 8)
}

// Proxies close connections with too long responses.
func TestReadArchive_SplitsQueriesOnReset(t *testing.T) {
	f := newFake(t)
	for i := range 4 {
		f.container("ns", fmt.Sprintf("web-%d", i), "app")
	}
	f.spoil = func(w http.ResponseWriter, _ *http.Request, a rangeQuery) bool {
		if len(a.pods) < 2 || !strings.Contains(a.query, "memory_bytes") {
			return false
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[`)
		w.(http.Flusher).Flush()
		connection, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = connection.(*net.TCPConn).SetLinger(0) // send a reset
			_ = connection.Close()
		}
		return true
	}
	found, problems := f.read(hour())
	require.Empty(t, problems)
	require.Len(t, found, 4)
}

func TestReadArchive_SplitsSeriesAndResourceQueries(t *testing.T) {
	f := newFake(t)
	for i := range 5 {
		pod := fmt.Sprintf("web-%d", i)
		f.container("ns", pod, "app")
		f.add("kube_pod_container_resource_requests", always("0.25"), "namespace", "ns", "pod", pod, "container", "app", "resource", "cpu")
		f.add("kube_pod_owner", always("1"), "namespace", "ns", "pod", pod, "owner_kind", "StatefulSet", "owner_name", "shop")
	}
	f.tooMuch = func(selectors []string, span time.Duration) bool { return len(selectors) > 1 || span > 2*time.Hour }
	f.spoil = func(w http.ResponseWriter, _ *http.Request, a rangeQuery) bool {
		bad := strings.Contains(a.query, "kube_pod_container_resource") && (len(a.pods) > 1 || a.pods[0] == "web-3")
		if bad {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		return bad
	}
	q := hour()
	q.Until = start.Add(7 * time.Hour)
	found, problems := f.read(q)
	require.Equal(t, []string{"ns/shop web-0/app", "ns/shop web-1/app", "ns/shop web-2/app", "ns/shop web-4/app"}, seriesNames(found))
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "ns/shop/web-3/app: kube_pod_container_resource_requests: ")
	for _, one := range found {
		require.Equal(t, resources.List{}.With(resources.CPU, 250), one.Requests)
	}
}

// A proxy with a byte limit truncates the list of series, and the usage of one container over a
// long time.
func TestReadArchive_SplitsTruncatedResponses(t *testing.T) {
	f := newFake(t)
	f.container("ns", "web-0", "app")
	q := hour()
	q.Step, q.Until = time.Second, start.Add(7*time.Hour)
	f.cuts, f.tooMuch = true, func(selectors []string, span time.Duration) bool { return len(selectors) > 1 || span > 2*time.Hour }
	f.spoil = func(w http.ResponseWriter, _ *http.Request, a rangeQuery) bool {
		long := strings.Contains(a.query, "cpu_total") && a.steps(q.Step) > MaxTimes/2
		if long {
			cut(w)
		}
		return long
	}
	found, problems := f.read(q)
	require.Empty(t, problems)
	require.Equal(t, []string{"ns/web web-0/app"}, seriesNames(found))
}

func TestReadArchive_SplitsQueriesOnTimeout(t *testing.T) {
	f := newFake(t)
	for i := range 4 {
		f.container("ns", fmt.Sprintf("web-%d", i), "app")
	}
	slow := 0
	f.spoil = func(w http.ResponseWriter, r *http.Request, a rangeQuery) bool {
		if len(a.pods) < 2 || !strings.Contains(a.query, "cpu_total") {
			return false
		}
		slow++
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	server := httptest.NewServer(testkit.StrictPrometheus(t, f.ServeHTTP))
	defer server.Close()
	client, err := New(process.OS{}, Config{Address: server.URL, Timeout: 100 * time.Millisecond})
	require.NoError(t, err)
	found, problems := f.readFrom(client, hour())
	require.Empty(t, problems)
	require.Len(t, found, 4)
	require.Equal(t, 3, slow)
}

func TestReadArchive_InvalidServerIsProblem(t *testing.T) {
	for _, tc := range []struct {
		name   string
		want   string
		answer func(http.ResponseWriter)
	}{
		{name: "unauthorized", want: "list containers: query http://127.0.0.1:",
			answer: func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }},
		{name: "HTML", want: "invalid character", answer: func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") }},
		{name: "data is a number", want: "want a list",
			answer: func(w http.ResponseWriter) { fmt.Fprint(w, `{"status":"success","data":7}`) }},
		{name: "no series", want: `no usage in this time range: expected series memory_bytes{pod=~".+"`,
			answer: func(w http.ResponseWriter) { fmt.Fprint(w, `{"status":"success","data":[]}`) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tc.answer(w) }))
			client, err := New(process.OS{}, Config{Address: server.URL, Timeout: time.Second})
			require.NoError(t, err)
			found, problems := newFake(t).readFrom(client, hour())
			server.Close()
			require.Empty(t, found)
			require.Len(t, problems, 1)
			require.Contains(t, problems[0], tc.want)
		})
	}
}

func TestReadArchive_ReportsContainersNotRead(t *testing.T) {
	f := newFake(t)
	f.container("a", "web-0", "app")
	for i := range 3 {
		f.container("b", fmt.Sprintf("web-%d", i), "app")
	}
	f.spoil = func(w http.ResponseWriter, _ *http.Request, a rangeQuery) bool {
		if !strings.Contains(a.query, `namespace="b"`) {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	found, problems := f.read(hour())
	require.Len(t, found, 1)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "cpu_cores: query http://")
	require.Contains(t, problems[0], "(403, Forbidden)")
	require.Contains(t, problems[0], "; 3 containers are not read")
	f.spoil = func(w http.ResponseWriter, _ *http.Request, _ rangeQuery) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	for i := range 40 {
		f.container("b", fmt.Sprintf("more-%d", i), "app")
	}
	f.queries = nil
	found, problems = f.read(hour())
	require.Empty(t, found)
	require.Contains(t, problems[len(problems)-1], "16 consecutive queries failed: ")
	require.LessOrEqual(t, len(f.queries), (16+2)*maxAttempts)
}

func TestReadArchive_SplitsLongTimesAndManyContainers(t *testing.T) {
	f := newFake(t)
	q := hour()
	q.Step, q.Until = time.Second, start.Add(7*time.Hour)
	for i := range 60 {
		f.usage("ns", fmt.Sprintf("web-%02d", i), "app", func(at time.Time) string { return map[bool]string{true: "1"}[at.Unix()%3600 < 2] }, always(""))
	}
	found, problems := f.read(q)
	require.Len(t, found, 60)
	require.Len(t, problems, 60+1, "gaps, and no memory")
	require.Len(t, found[0].At, 15, "the last hour has one")
	values := 0
	for _, a := range f.queries {
		if strings.Contains(a.query, "kube_pod_container_resource") {
			continue // uses longer steps
		}
		require.LessOrEqual(t, a.steps(q.Step), MaxTimes, a.query)
		require.LessOrEqual(t, a.steps(q.Step)*len(a.pods), queryValues, a.query)
		if strings.Contains(a.query, "cpu_total") {
			values += a.steps(q.Step) * len(a.pods)
		}
	}
	require.Equal(t, 60*(7*3600+1), values, "each time is asked for once")
}

func TestReadArchive_QueriesOnlySelected(t *testing.T) {
	f := newFake(t)
	f.container("ns", "web-0", "app")
	f.container("ns", "web-1", "app")
	f.container("ns", "web-1", "proxy")
	f.container("ns", "db-0", "app")
	f.add("kube_pod_labels", always("1"), "namespace", "ns", "pod", "web-1", "label_app", "web")
	q := hour()
	q.Usage.Namespace, q.Usage.Matchers, q.Usage.Job = "ns", `cluster="eu"`, "kubelet"
	var err error
	q.Pods, err = labels.Parse("app.kubernetes.io/name in (web,w.b),tier,!old,env!=dev")
	require.NoError(t, err)
	f.want = func(workload, container string) bool { return workload == "ns/web" && container == "web-1/proxy" }
	found, problems := f.read(q)
	require.Empty(t, problems)
	require.Equal(t, []string{"ns/web web-1/proxy"}, seriesNames(found))
	require.Equal(t, `memory_bytes{job="kubelet", pod=~".+", container!="POD", container!="", namespace="ns", cluster="eu"}`, f.selectors[1])
	require.Equal(t, `kube_pod_labels{label_app_kubernetes_io_name=~"w\\.b|web", label_env!~"dev", label_old="", label_tier!="", cluster="eu", namespace="ns", exported_namespace=""}`, f.selectors[2])
	require.Contains(t, f.queries[0].query, `namespace="ns", cluster="eu", pod=~"web-1"}[5m]))`)
	f.series = slices.DeleteFunc(f.series, func(s series) bool { return s.labels["__name__"] == "kube_pod_labels" })
	_, problems = f.read(q)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "no pod has the labels app.kubernetes.io/name in (w.b,web),env!=dev,!old,tier: expected series kube_pod_labels{")
}

func TestReadArchive_StopsWithContext(t *testing.T) {
	f := newFake(t)
	for i := range 3 {
		f.container(fmt.Sprintf("ns%d", i), "web-0", "app")
	}
	server := httptest.NewServer(testkit.StrictPrometheus(t, f.ServeHTTP))
	defer server.Close()
	client, err := New(process.OS{}, Config{Address: server.URL, Timeout: time.Second})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for r, p := range ReadArchive(ctx, client, hour(), nil) {
		require.Nil(t, p)
		require.IsType(t, &replay.Recording{}, r)
		n++
		cancel()
	}
	require.Equal(t, 1, n)
	for r, p := range ReadArchive(t.Context(), client, hour(), nil) {
		require.NotNil(t, r)
		require.Nil(t, p)
		n++
		break // the iterator must stop
	}
	require.Equal(t, 2, n)
}

// kube-state-metrics converts label names to snake case.
func TestMatchers_ConvertLabelNamesLikeExporter(t *testing.T) {
	selector, err := labels.Parse("appName!=web,appTier=front,!K8sJob")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{`label_app_name!~"web"`, `label_app_tier=~"front"`, `label_k8s_job=""`}, matchers(selector))
}

func TestReadArchive_StateMatchersApplyToStateMetrics(t *testing.T) {
	f := newFake(t)
	f.container("ns", "web-0", "app")
	q := hour()
	q.StateMatchers = `cluster="eu"`
	_, problems := f.read(q)
	require.Empty(t, problems)
	for _, asked := range f.queries[2:] {
		require.Contains(t, asked.query, `cluster="eu", namespace="ns"`)
	}
	require.Contains(t, f.selectors, `kube_pod_owner{cluster="eu"}`)
}

func TestReadArchive_ReportsMissingResource(t *testing.T) {
	f := newFake(t)
	f.usage("ns", "web-0", "app", always(""), always("1e8"))
	found, problems := f.read(hour())
	require.Len(t, found, 1)
	require.Equal(t, []string{"no container has cpu_cores: expected at least one; a rate needs at least two scrapes within --history-resolution, which is 5m0s"}, problems)
}

func TestReadArchive_ReportsServerWarnings(t *testing.T) {
	f := newFake(t)
	f.container("ns", "web-0", "app")
	f.container("ns", "web-1", "app")
	f.spoil = func(w http.ResponseWriter, _ *http.Request, a rangeQuery) bool {
		if !strings.Contains(a.query, "requests") {
			return false
		}
		fmt.Fprint(w, `{"status":"success","warnings":["a store is away"],"data":{"resultType":"matrix","result":[]}}`)
		return true
	}
	found, problems := f.read(hour())
	require.Len(t, found, 2)
	require.Equal(t, []string{"warning from the server: a store is away: expected a complete response"}, problems)
}
