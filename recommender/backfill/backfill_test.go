package backfill

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	clientprom "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/recommender/model"
)

func now() time.Time { return time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC) }

// fakePrometheus serves the series of a test.
type fakePrometheus struct {
	t      *testing.T
	series map[string][]fakeSeries // by metric: cpu_total, waited_total, mem
	labels string                  // response data of the label query
	fails  func(query string, start time.Time) (code int, body string)
	// minRefusedRange is the length from which range queries fail. Zero accepts all.
	minRefusedRange time.Duration
	truncates       bool     // truncate long responses instead
	queries         []string // metric and start of each range query

	config Config
	ctx    context.Context // of Run
}

type fakeSeries struct {
	labels map[string]string
	value  func(at time.Time) (value string, found bool)
}

func (f *fakePrometheus) add(metric string, namespace, pod, container string, value func(at time.Time) (string, bool)) {
	f.series[metric] = append(f.series[metric], fakeSeries{map[string]string{"namespace": namespace, "pod_name": pod, "name": container}, value})
}

func constantValue(value string) func(time.Time) (string, bool) {
	return func(time.Time) (string, bool) { return value, true }
}

func newFakePrometheus(t *testing.T, pods ...*corev1.Pod) *fakePrometheus {
	f := &fakePrometheus{t: t, ctx: t.Context(), series: map[string][]fakeSeries{}, labels: `{"resultType":"vector","result":[]}`}
	server := httptest.NewServer(testkit.StrictPrometheus(t, f.ServeHTTP))
	t.Cleanup(server.Close)
	client, err := prometheus.New(process.OS{}, prometheus.Config{Address: server.URL, Timeout: 5 * time.Second})
	require.NoError(t, err)
	f.config = Config{
		Client: client,
		Usage:  prometheus.Usage{CPUMetric: "cpu_total", MemoryMetric: "mem", NamespaceLabel: "namespace", PodLabel: "pod_name", ContainerLabel: "name"},
		Labels: Labels{Query: "the_labels", Prefix: "pod_label_", Namespace: "ns_label", Pod: "pod_label"},
		Length: 3 * 24 * time.Hour, Step: time.Hour,
		Store: usage.DefaultConfig(),
		VPAs:  rosterOf(t), Pods: listerOf(t, pods...),
		Results: clientprom.NewCounterVec(clientprom.CounterOpts{Name: "samples"}, []string{"result"}),
	}
	return f
}

func (f *fakePrometheus) counts() map[string]int {
	registry := clientprom.NewRegistry()
	registry.MustRegister(f.config.Results)
	families, err := registry.Gather()
	require.NoError(f.t, err)
	counts := map[string]int{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			counts[m.GetLabel()[0].GetValue()] = int(m.GetCounter().GetValue())
		}
	}
	return counts
}

// rosterOf returns a roster of VPAs. All targets resolve to the selector of the last VPA.
func rosterOf(t *testing.T, vpas ...model.Observed) *model.Roster {
	objects := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	r := &model.Roster{Name: model.DefaultRecommender, VPAs: vpalisters.NewVerticalPodAutoscalerLister(objects)}
	for _, v := range vpas {
		require.NoError(t, objects.Add(v.Object))
		r.Targets = oneTarget{v.Selector}
	}
	return r
}

type oneTarget struct{ labels.Selector }

func (o oneTarget) Resolve(context.Context, string, *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
	return o.Selector, nil
}

func (oneTarget) Recheck(string, *autoscalingv1.CrossVersionObjectReference) {}

func listerOf(t *testing.T, pods ...*corev1.Pod) corelisters.PodLister {
	objects := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, pod := range pods {
		require.NoError(t, objects.Add(pod))
	}
	return corelisters.NewPodLister(objects)
}

func (f *fakePrometheus) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.FormValue("query")
	start := parseTime(f.t, r.FormValue("start"))
	if f.fails != nil {
		if code, body := f.fails(query, start); code != 0 {
			w.WriteHeader(code)
			fmt.Fprint(w, body)
			return
		}
	}
	if f.minRefusedRange > 0 && query != "the_labels" && parseTime(f.t, r.FormValue("end")).Sub(start) >= f.minRefusedRange {
		if f.truncates {
			w.Header().Set("Content-Length", "1000000")
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[`)
			return
		}
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	if query == "the_labels" {
		fmt.Fprintf(w, `{"status":"success","data":%s}`, f.labels)
		return
	}
	if query == f.config.Usage.Memory() && strings.HasSuffix(r.URL.Path, "/query") { // query for the clusters
		f.serve(w, "mem", now(), now(), time.Hour, "vector")
		return
	}
	kind := "mem"
	for _, counter := range []string{"cpu_total", "waited_total"} {
		if strings.Contains(query, counter) {
			kind = counter
		}
	}
	f.queries = append(f.queries, kind+" "+start.Format("02T15:04"))
	step, err := strconv.Atoi(r.FormValue("step"))
	require.NoError(f.t, err)
	f.serve(w, kind, start, parseTime(f.t, r.FormValue("end")), time.Duration(step)*time.Second, "matrix")
}

func (f *fakePrometheus) serve(w http.ResponseWriter, kind string, start, end time.Time, step time.Duration, form string) {
	type series struct {
		Metric map[string]string `json:"metric"`
		Values [][2]any          `json:"values,omitempty"`
		Value  []any             `json:"value,omitempty"`
	}
	list := []series{}
	for _, s := range f.series[kind] {
		one := series{Metric: s.labels}
		for at := start; !at.After(end); at = at.Add(step) {
			if value, found := s.value(at); found {
				one.Values = append(one.Values, [2]any{at.Unix(), value})
			}
		}
		if form == "vector" {
			if len(one.Values) == 0 {
				continue
			}
			one.Value, one.Values = one.Values[0][:], nil
		}
		list = append(list, one)
	}
	text, err := json.Marshal(list)
	require.NoError(f.t, err)
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":%q,"result":%s}}`, form, text)
}

func parseTime(t *testing.T, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return time.Unix(seconds, 0).UTC()
}

func (f *fakePrometheus) load() (*Loader, LoadedHistory) {
	l := New(f.config, now())
	l.finishAttempt(l.attempt(f.t.Context(), now()))
	list := l.Take()
	require.Len(f.t, list, 1)
	require.Empty(f.t, l.Take())
	return l, list[0]
}

// set returns the history of a container by pod labels.
func (p LoadedHistory) set(t *testing.T, container, labels string) usage.ProfileImage {
	t.Helper()
	series, found := p.Store.Find(usage.SeriesKey{Namespace: "ns", Container: container, Labels: labels})
	require.True(t, found, "%v", p.keys())
	scratch := usage.NewProfile(usage.DefaultConfig().Shape)
	p.Store.Profile(&scratch, series)
	return scratch.Image()
}

func (p LoadedHistory) keys() (keys []usage.SeriesKey) {
	for _, key := range p.Store.All() {
		keys = append(keys, key)
	}
	return keys
}

func aPod(name string, set labels.Set, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: set}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	return p
}

func hourlyUsage(at time.Time) int64 { return 100 + at.Unix()/3600*37%400 }

func TestLoader_HistoryMatchesLiveSamples(t *testing.T) {
	f := newFakePrometheus(t, aPod("p", labels.Set{"app": "x"}, "c"))
	gap := func(at time.Time) bool { return at.Hour() == 3 }
	f.add("cpu_total", "ns", "p", "c", func(at time.Time) (string, bool) {
		return fmt.Sprintf("%d.0009e-3", hourlyUsage(at)), !gap(at)
	})
	f.add("mem", "ns", "p", "c", func(at time.Time) (string, bool) {
		if at.Hour() == 5 {
			return "NaN", true
		}
		return fmt.Sprintf("%d.7", hourlyUsage(at)<<20), !gap(at)
	})
	// Series overlap after a restart. The higher value counts.
	f.add("mem", "ns", "p", "c", func(at time.Time) (string, bool) { return "5000", at.Day() == 8 })
	l, past := f.load()

	store := usage.NewStore(usage.DefaultConfig())
	live := model.NewModel(model.Config{Store: store})
	live.PutPod(aPod("p", labels.Set{"app": "x"}, "c"), now())
	key := usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "c"}
	want := 0
	for at := now().Add(-72 * time.Hour); !at.After(now()); at = at.Add(time.Hour) {
		if gap(at) {
			if at.Day() == 8 {
				require.Equal(t, usage.Accepted, store.Observe(usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: 5000}))
				want++
			}
			continue
		}
		memory := resources.Amount(hourlyUsage(at) << 20)
		if at.Hour() == 5 {
			if memory = 5000; at.Day() != 8 {
				memory = missingAmount
			}
		}
		if memory != missingAmount {
			require.Equal(t, usage.Accepted, store.Observe(usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: memory}))
			want++
		}
		require.Equal(t, usage.Accepted, store.Observe(usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: resources.Amount(hourlyUsage(at))}))
		want++
	}
	require.Equal(t, LoadedHistory{live, store}.set(t, "c", "app=x"), past.set(t, "c", "app=x"))
	gotPeak, gotEnd, _ := past.Store.Peak(key)
	wantPeak, wantEnd, _ := store.Peak(key)
	require.Equal(t, wantPeak, gotPeak)
	require.Equal(t, wantEnd, gotEnd)

	require.Equal(t, Progress{State: Complete, Done: 2 * 73, Total: 2 * 73, Samples: want}, l.Progress())
	require.Equal(t, map[string]int{accepted: want, notNumber: 3}, f.counts())
	require.Equal(t, []string{"cpu_total 07T08:00", "mem 07T08:00", "cpu_total 08T08:00", "mem 08T08:00",
		"cpu_total 09T08:00", "mem 09T08:00", "cpu_total 10T08:00", "mem 10T08:00"}, f.queries)
}

// Usage of two clusters is neither summed nor mixed. Other containers keep their history.
func TestRun_RefusesSeriesOfTwoClusters(t *testing.T) {
	f := newFakePrometheus(t, aPod("p", labels.Set{"app": "x"}, "c"), aPod("q", labels.Set{"app": "x"}, "c"))
	f.config.VPAs = rosterOf(t, model.Observed{Object: &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}, Selector: labels.SelectorFromSet(labels.Set{"app": "x"})})
	for _, metric := range []string{"cpu_total", "mem"} {
		f.add(metric, "ns", "p", "c", constantValue("1"))
		f.add(metric, "ns", "p", "c", constantValue("2"))
		f.add(metric, "ns", "q", "c", constantValue("1"))
		f.series[metric][0].labels["cluster"], f.series[metric][1].labels["cluster"] = "east", "west"
	}
	l := New(f.config, now())
	l.Run(f.ctx)
	require.Equal(t, Complete, l.Progress().State)
	require.Equal(t, map[string]int{accepted: 2 * 73, ambiguous: 2 * 73}, f.counts())
}

// Pod names of Deployments differ between clusters. The running pods identify the own cluster.
func TestRun_IgnoresOtherClusters(t *testing.T) {
	f := newFakePrometheus(t, aPod("p", labels.Set{"app": "x"}, "c"))
	f.config.VPAs = rosterOf(t, model.Observed{Object: &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}, Selector: labels.SelectorFromSet(labels.Set{"app": "x"})})
	f.labels = `{"resultType":"vector","result":[` +
		`{"metric":{"ns_label":"ns","pod_label":"gone","pod_label_app":"x"},"value":[1,"1"]},{"metric":{"ns_label":"ns","pod_label":"other","pod_label_app":"x"},"value":[1,"1"]}]}`
	for _, metric := range []string{"cpu_total", "mem"} {
		for i, pod := range []struct{ name, cluster string }{{"p", "east"}, {"gone", "east"}, {"other", "west"}} {
			f.add(metric, "ns", pod.name, "c", constantValue("1"))
			f.series[metric][i].labels["cluster"] = pod.cluster
		}
	}
	l := New(f.config, now())
	l.Run(f.ctx)
	require.Equal(t, Complete, l.Progress().State)
	require.Equal(t, map[string]int{accepted: 2 * 2 * 73, otherCluster: 2 * 73}, f.counts())
}

func TestRun_RefusesClustersWithoutRunningPods(t *testing.T) {
	f := newFakePrometheus(t)
	for _, metric := range []string{"cpu_total", "mem"} {
		f.add(metric, "ns", "p", "c", constantValue("1"))
		f.add(metric, "ns", "q", "c", constantValue("1"))
		f.series[metric][0].labels["cluster"], f.series[metric][1].labels["cluster"] = "east", "west"
	}
	l := New(f.config, now())
	l.Run(f.ctx)
	require.Equal(t, map[string]int{ambiguous: 4 * 73}, f.counts())
}

func TestPlan_SameStepReadsSamePoints(t *testing.T) {
	for _, tc := range []struct {
		name         string
		length, step time.Duration
	}{
		{name: "8 days in hours", length: 8 * 24 * time.Hour, step: time.Hour},
		{name: "step that does not divide the length", length: time.Hour, step: 7 * time.Minute},
		{name: "step longer than the history", length: time.Minute, step: time.Hour},
		{name: "two steps", length: 72 * time.Hour, step: 36 * time.Hour},
		{name: "more steps than one query returns", length: 30 * time.Hour, step: time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin := now().Truncate(tc.step)
			points := func(at time.Time) (found []time.Time) {
				for _, chunk := range plan(at, tc.length, tc.step) {
					require.LessOrEqual(t, chunk.Count, prometheus.MaxTimes)
					for i := range chunk.Count {
						if chunk.kind == resources.CPU {
							found = append(found, chunk.At(i))
						}
					}
				}
				return found
			}
			want := points(begin)
			require.Equal(t, begin, want[len(want)-1])
			require.Equal(t, begin.Add(-tc.length.Truncate(tc.step)), want[0])
			for i := range want[1:] {
				require.Equal(t, tc.step, want[i+1].Sub(want[i]))
			}
			for _, later := range []time.Duration{300 * time.Millisecond, tc.step / 3, tc.step - time.Millisecond} {
				at := begin.Add(later)
				got := points(at)
				require.Equal(t, want, got[:len(want)], "%s later", later)
				if at = at.Truncate(time.Second); at.After(begin) {
					require.Equal(t, []time.Time{at}, got[len(want):], "the usage since the last whole step")
				}
			}
		})
	}
}

func TestChunkSplit_HalvesLargeChunks(t *testing.T) {
	hours := func(from, count int) chunk {
		return chunk{resources.CPU, prometheus.Times{Start: now().Add(time.Duration(from) * time.Hour), Step: time.Hour, Count: count}}
	}
	c := hours(0, 25)
	heavy := fmt.Errorf("query: %w", &prometheus.Error{Code: 422})
	require.Equal(t, []chunk{hours(0, 12), hours(12, 13)}, c.Split(heavy))
	require.Len(t, c.Split(fmt.Errorf("%w within 5m", prometheus.ErrTimeout)), 2)
	require.Len(t, c.Split(&prometheus.TooLargeError{}), 2)
	require.Len(t, c.Split(fmt.Errorf("%w: connection reset", prometheus.ErrCut)), 2)
	require.Len(t, c.Split(io.ErrUnexpectedEOF), 2)
	require.Equal(t, []chunk{c}, c.Split(&prometheus.Error{Code: 500}))
	require.Equal(t, []chunk{hours(0, 1)}, hours(0, 1).Split(heavy))
}

// An attempt ends at a day that cannot be loaded, and the next attempt resumes there.
func TestLoader_HalvesChunksUntilAccepted(t *testing.T) {
	for _, tc := range []struct {
		name string
		cuts bool
	}{{name: "the server refuses"}, {name: "a proxy cuts the answer", cuts: true}} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakePrometheus(t, aPod("p", labels.Set{"app": "x"}, "c"))
			f.config.Length = 47 * time.Hour
			f.add("cpu_total", "ns", "p", "c", constantValue("1"))
			f.add("mem", "ns", "p", "c", constantValue("1"))
			f.minRefusedRange, f.truncates = 7*time.Hour, tc.cuts
			l := New(f.config, now())
			for attempts := 0; l.finishAttempt(l.attempt(t.Context(), now())).State != Complete; attempts++ {
				require.Less(t, attempts, 20)
			}
			require.Equal(t, Progress{State: Complete, Done: 2 * 48, Total: 2 * 48, Samples: 2 * 48}, l.Progress())
		})
	}
}

func TestLoader_LoadsOtherChunksAfterFailure(t *testing.T) {
	for code, refused := range map[int]func(query string, day int) bool{
		http.StatusBadRequest:         func(query string, _ int) bool { return strings.Contains(query, "cpu_total") },
		http.StatusServiceUnavailable: func(_ string, day int) bool { return day == 1 },
	} {
		f := newFakePrometheus(t, aPod("p", labels.Set{"app": "x"}, "c"))
		f.config.Length = 5 * 24 * time.Hour
		f.add("cpu_total", "ns", "p", "c", constantValue("1"))
		f.add("mem", "ns", "p", "c", constantValue("1"))
		f.fails = func(query string, start time.Time) (int, string) {
			if refused(query, int(start.Sub(now().Add(-f.config.Length))/(24*time.Hour))) {
				return code, ""
			}
			return 0, ""
		}
		l := New(f.config, now())
		require.Error(t, l.attempt(t.Context(), now()))
		chunks := plan(now(), f.config.Length, f.config.Step)
		var fail, missing int
		for _, c := range chunks {
			if refused(map[resources.Kind]string{resources.CPU: "cpu_total", resources.Memory: "mem"}[c.kind], int(c.Start.Sub(now().Add(-f.config.Length))/(24*time.Hour))) {
				fail += c.Count
			}
		}
		for _, c := range l.missing {
			missing += c.Count
		}
		require.Positive(t, fail)
		require.Equal(t, fail, missing, code)
	}
}

func TestLoader_SkipsNonContainerSeries(t *testing.T) {
	f := newFakePrometheus(t, aPod("p", labels.Set{"app": "x"}, "c"))
	f.config.Length = 2 * time.Hour
	f.add("cpu_total", "ns", "p", "c", constantValue("1"))
	f.add("cpu_total", "ns", "", "c", constantValue("1"))
	f.add("cpu_total", "ns", "p", "c2", constantValue("-1"))
	f.series["mem"] = append(f.series["mem"], fakeSeries{map[string]string{"other": "x"}, constantValue("1")})
	_, past := f.load()
	require.EqualValues(t, 3, past.set(t, "c", "app=x").Samples)
	require.Equal(t, map[string]int{accepted: 3, noContainer: 6, negative: 3}, f.counts())
}

func TestLoader_IgnoresInitContainers(t *testing.T) {
	pod := aPod("web-7d9f8b6c5d-x2k4p", labels.Set{"app": "x"}, "c")
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	f := newFakePrometheus(t, pod)
	f.config.Length = time.Hour
	for _, pod := range []string{"web-7d9f8b6c5d-x2k4p", "web-7d9f8b6c5d-zzzzz"} {
		f.add("cpu_total", "ns", pod, "c", constantValue("1"))
		f.add("cpu_total", "ns", pod, "setup", constantValue("1"))
	}
	_, past := f.load()
	require.Len(t, past.keys(), 1)
	require.Equal(t, map[string]int{accepted: 4, initContainer: 4}, f.counts())
}

func TestMemorySaver_FeedsOnlySelectedPods(t *testing.T) {
	f := newFakePrometheus(t, aPod("p", labels.Set{"app": "x"}, "c"), aPod("q", labels.Set{"app": "y"}, "c"))
	f.config.Length, f.config.MemorySaver = time.Hour, true
	vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}
	f.config.VPAs = rosterOf(t, model.Observed{Object: vpa, Selector: labels.SelectorFromSet(labels.Set{"app": "x"})})
	f.add("cpu_total", "ns", "p", "c", constantValue("1"))
	f.add("cpu_total", "ns", "q", "c", constantValue("1"))
	_, past := f.load()
	require.Equal(t, []usage.SeriesKey{{Namespace: "ns", Container: "c", Labels: "app=x"}}, past.keys())
	require.Equal(t, map[string]int{accepted: 2, notSelected: 2}, f.counts())
}

func TestPodLabels_FromMatrixOrVector(t *testing.T) {
	result := func(kind, value string) string {
		one := func(pod, more string) string {
			return `{"metric":{"ns_label":"ns","pod_label":"` + pod + `"` + more + `},` + value + `}`
		}
		return `{"resultType":"` + kind + `","result":[` + strings.Join([]string{
			one("live", `,"pod_label_app":"older"`),
			one("gone", `,"pod_label_app_kubernetes_io_name":"x","pod_label_other":"y","job":"kube-state-metrics"`),
			one("bare", ""),
			one("nobody", ""),
			`{"metric":{"pod_label":"p"},` + value + `}`,
		}, ",") + `]}`
	}
	live := aPod("live", labels.Set{"app.kubernetes.io/name": "x"}, "c")
	for name, answer := range map[string]string{
		"matrix": result("matrix", `"values":[[1,"1"],[2,"1"]]`),
		"vector": result("vector", `"value":[2,"1"]`),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakePrometheus(t, live)
			f.config.Length = time.Hour
			f.labels = answer
			for _, pod := range []string{"live", "gone", "bare", "nobody"} {
				f.add("cpu_total", "ns", pod, "c", constantValue("1"))
			}
			_, past := f.load()
			require.EqualValues(t, 2, past.set(t, "c", "app.kubernetes.io/name=x").Samples)
			require.EqualValues(t, 2, past.set(t, "c", "app.kubernetes.io/name=x,other=y").Samples)
			require.Equal(t, map[string]int{accepted: 4, noLabels: 4}, f.counts())
		})
	}
}

func TestPodLabels_NewestSeriesWins(t *testing.T) {
	f := newFakePrometheus(t)
	f.config.Length = time.Hour
	one := func(app, at string) string {
		return `{"metric":{"ns_label":"ns","pod_label":"p","pod_label_app":"` + app + `"},"values":[[1,"1"],[` + at + `,"1"]]}`
	}
	f.labels = `{"resultType":"matrix","result":[` + one("a", "5") + "," + one("b", "7") + "," + one("c", "6") + `]}`
	f.add("cpu_total", "ns", "p", "c", constantValue("1"))
	_, past := f.load()
	require.EqualValues(t, 2, past.set(t, "c", "app=b").Samples)
}

func TestPodLabels_FallBackToWorkload(t *testing.T) {
	owned := func(name, kind string, set labels.Set) *corev1.Pod {
		p := aPod(name, set, "c")
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: new(true)}}
		return p
	}
	f := newFakePrometheus(t,
		owned("web-7d9f8b6c5d-x2k4p", "ReplicaSet", labels.Set{"app": "web", "hash": "new"}),
		owned("web-5c5d7b6f9d-bbbbb", "ReplicaSet", labels.Set{"app": "web", "hash": "old"}),
		owned("db-0", "StatefulSet", labels.Set{"app": "db"}),
		owned("agent-x2k4p", "DaemonSet", labels.Set{"app": "agent"}),
		owned("both-0", "StatefulSet", labels.Set{"app": "both1"}),
		owned("both-7d9f8b6c5d-x2k4p", "ReplicaSet", labels.Set{"app": "both2"}),
	)
	f.config.Length = time.Hour
	f.fails = func(query string, _ time.Time) (int, string) {
		if query == "the_labels" {
			return 400, `{"status":"error","errorType":"bad_data","error":"no such function"}`
		}
		return 0, ""
	}
	for _, pod := range []string{"web-7d9f8b6c5d-zzzzz", "web-66f9d5b7c8-zzzzz", "db-7", "agent-zzzzz", "both-3", "both-7d9f8b6c5d-zzzzz", "web", "other-0"} {
		f.add("cpu_total", "ns", pod, "c", constantValue("1"))
	}
	l, past := f.load()
	require.Equal(t, Empty, l.Progress().State)
	for set, samples := range map[string]int{"app=web,hash=new": 2, "app=web,hash=old": 2, "app=db": 2, "app=agent": 2, "app=both2": 2} {
		require.EqualValues(t, samples, past.set(t, "c", set).Samples, set)
	}
	require.Equal(t, map[string]int{accepted: 10, noLabels: 6}, f.counts(), "both-3 may be of either, web and other-0 of none")
}

func TestRestoreNames_ResolvesUnambiguousLabels(t *testing.T) {
	d := newDirectory([]*corev1.Pod{aPod("p", labels.Set{"a.b": "1", "a/b": "1", "c.d": "1"})})
	d.record(podName{"ns", "gone"}, map[string]string{"a_b": "1", "c_d": "1", "__name__": "x"}, "", now())
	d.restoreNames()
	require.Equal(t, map[string]string{"a_b": "1", "c.d": "1"}, d.deleted[podName{"ns", "gone"}].labels, "what could be two stays as it is")
}

func TestLoader_RetriesFailedChunks(t *testing.T) {
	f := newFakePrometheus(t, aPod("p", labels.Set{"app": "x"}, "c"))
	f.add("cpu_total", "ns", "p", "c", constantValue("1"))
	f.add("mem", "ns", "p", "c", constantValue("1000"))
	bad := now().Add(-48 * time.Hour)
	f.fails = func(query string, start time.Time) (int, string) {
		if strings.HasPrefix(query, "rate") && start.Equal(bad) {
			return 500, "out of order"
		}
		return 0, ""
	}
	l, past := f.load()
	p := l.Progress()
	require.ErrorContains(t, p.Err, "cpu usage from 2026-03-08T08:00:00Z: query http://127.0.0.1")
	p.Err = nil
	require.Equal(t, Progress{State: Partial, Done: 146 - 24, Total: 146, Samples: 146 - 24}, p)
	require.EqualValues(t, 49, past.set(t, "c", "app=x").Samples)

	f.fails, f.queries = nil, nil
	require.NoError(t, l.attempt(t.Context(), now()))
	require.Equal(t, Progress{State: Complete, Done: 146, Total: 146, Samples: 146}, l.finishAttempt(nil))
	require.Equal(t, []string{"cpu_total 08T08:00"}, f.queries)
	require.EqualValues(t, 24, l.Take()[0].set(t, "c", "app=x").Samples)
}

func TestLoader_StopsIfServerUnavailable(t *testing.T) {
	f := newFakePrometheus(t)
	n := 0
	f.fails = func(query string, _ time.Time) (int, string) {
		if query == "the_labels" {
			return 0, ""
		}
		n++
		return 502, ""
	}
	l := New(f.config, now())
	err := l.attempt(t.Context(), now())
	require.Error(t, err)
	require.Equal(t, 1+maxQueryFailures, n, "clusters, then usage")
	require.Equal(t, Failed, l.finishAttempt(err).State)
	require.Len(t, l.missing, 8)
	require.Empty(t, l.Take())

	f.fails = func(query string, _ time.Time) (int, string) { return 503, "" }
	require.ErrorContains(t, l.attempt(t.Context(), now()), "labels of pods: query http")
	require.Len(t, l.missing, 8)
}

func TestRun_EndsAfterCompleteLoad(t *testing.T) {
	f := newFakePrometheus(t, aPod("p", labels.Set{"app": "x"}, "c"))
	f.add("cpu_total", "ns", "p", "c", constantValue("1"))
	f.add("mem", "ns", "p", "c", constantValue("1"))
	n := 0
	f.fails = func(string, time.Time) (int, string) {
		if n++; n < 3 {
			return 500, ""
		}
		return 0, ""
	}
	l := New(f.config, now())
	l.retryInterval = time.Millisecond
	require.Equal(t, Loading, l.Progress().State)
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(t.Context()) }()
	<-l.FirstAttempt()
	<-ended
	require.Equal(t, Complete, l.Progress().State)
	require.NoError(t, l.Progress().Err)
	require.Len(t, l.Take(), 1)
}

func TestRun_StopsWithContext(t *testing.T) {
	f := newFakePrometheus(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.fails = func(string, time.Time) (int, string) { return 500, "" }
	l := New(f.config, now())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	<-l.FirstAttempt()
	require.Equal(t, Failed, l.Progress().State)
	cancel()
	<-ended
}
