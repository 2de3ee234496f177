package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/backfill"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
	"loadline.dev/loadline/recommender/status"
)

const (
	length = 8 * 24 * time.Hour
	scrape = 5 * time.Minute

	running = "web-7d9f8b6c5d-x2k4p"
	gone    = "web-66f9d5b7c8-bbbbb" // of an older ReplicaSet
	appKey  = "app.kubernetes.io/name"
)

// container is a container with constant usage within each hour of the history, so that a rate over
// an hour is exact.
type container struct {
	pod, name  string
	from, till time.Time
	seed       int
}

// cores returns the CPU usage in the given hour before the end. Half a millicore avoids the edge
// where fractions are dropped.
func (c container) cores(hour int) float64 {
	return float64(50+(max(hour, 0)*37+c.seed*91)%700)/1000 + 0.0005
}

func (c container) bytes(hour int) int64 {
	return int64(100+(max(hour, 0)*53+c.seed*17)%900)<<20 + 123
}

// testServer is a Prometheus with eight days of usage of several containers.
type testServer struct {
	end        time.Time
	address    string
	containers []container
}

func newTestServer(t *testing.T) *testServer {
	end := time.Now().UTC().Truncate(time.Hour) // history is read at full hours
	w := &testServer{end: end}
	begin, soon := end.Add(-length-time.Hour), end.Add(90*time.Minute)
	w.containers = []container{
		{running, "app", begin, soon, 1},
		{running, "proxy", begin, soon, 2},
		{gone, "app", begin, end.Add(-4*24*time.Hour - 25*time.Minute), 3},
		{"db-0", "app", begin, soon, 4},
	}
	w.address = start(t, w.openMetrics())
	return w
}

func (w *testServer) hour(at time.Time) int {
	return int((w.end.Sub(at)) / time.Hour)
}

func (w *testServer) openMetrics() string {
	var text strings.Builder
	each := func(kind, metric, sample string, value func(c container) func(at time.Time) string) {
		fmt.Fprintf(&text, "# TYPE %s %s\n", metric, kind)
		for _, c := range w.containers {
			next := value(c)
			for at := c.from; !at.After(c.till); at = at.Add(scrape) {
				fmt.Fprintf(&text, "%s{job=%q,namespace=%q,pod_name=%q,name=%q,id=%q} %s %d\n", sample, "cadvisor", "ns", c.pod, c.name, "/kubepods/"+c.pod, next(at), at.Unix())
			}
		}
	}
	each("counter", "cpu_seconds", "cpu_seconds_total", func(c container) func(time.Time) string {
		total := 0.0
		return func(at time.Time) string {
			now := total
			total += c.cores(w.hour(at.Add(scrape))) * scrape.Seconds()
			return strconv.FormatFloat(now, 'f', -1, 64)
		}
	})
	each("gauge", "memory_bytes", "memory_bytes", func(c container) func(time.Time) string {
		return func(at time.Time) string { return strconv.FormatInt(c.bytes(w.hour(at)), 10) }
	})
	fmt.Fprintln(&text, "# TYPE pod_labels gauge")
	for _, c := range w.containers {
		if c.name != "app" {
			continue
		}
		for at := c.from; !at.After(c.till); at = at.Add(scrape) {
			fmt.Fprintf(&text, "pod_labels{ns=\"ns\",pod=%q,label_app_kubernetes_io_name=%q} 1 %d\n", c.pod, appOf(c.pod), at.Unix())
		}
	}
	text.WriteString("# EOF\n")
	return text.String()
}

func appOf(pod string) string { return strings.SplitN(pod, "-", 2)[0] }

func names() prometheus.Usage {
	return prometheus.Usage{CPUMetric: "cpu_seconds_total", MemoryMetric: "memory_bytes", Job: "cadvisor",
		NamespaceLabel: "namespace", PodLabel: "pod_name", ContainerLabel: "name"}
}

func (w *testServer) client(t *testing.T) *prometheus.Client {
	client, err := prometheus.New(process.OS{}, prometheus.Config{Address: w.address, Timeout: 30 * time.Second})
	require.NoError(t, err)
	return client
}

func testPod(name string, containers ...string) *corev1.Pod {
	kind := "ReplicaSet"
	if strings.HasPrefix(name, "db") {
		kind = "StatefulSet"
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels.Set{appKey: appOf(name)},
		OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: new(true)}}}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	return p
}

func vpas() []model.Observed {
	var list []model.Observed
	for _, app := range []string{"db", "web"} {
		list = append(list, model.Observed{
			Object: &vpav1.VerticalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: app},
				Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: app}},
			},
			Selector: selectorOf(app),
		})
	}
	return list
}

type targets struct{}

func (targets) Resolve(_ context.Context, _ string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
	return selectorOf(ref.Name), nil
}

func (targets) Recheck(string, *autoscalingv1.CrossVersionObjectReference) {}

func selectorOf(app string) labels.Selector { return labels.SelectorFromSet(labels.Set{appKey: app}) }

func newIndexer() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
}

func (w *testServer) load(t *testing.T, expression string) backfill.LoadedHistory {
	t.Helper()
	samples := client.NewCounterVec(client.CounterOpts{Name: "samples"}, []string{"result"})
	objects, pods := newIndexer(), newIndexer()
	for _, v := range vpas() {
		require.NoError(t, objects.Add(v.Object))
	}
	for _, pod := range []*corev1.Pod{testPod(running, "app", "proxy"), testPod("db-0", "app")} {
		require.NoError(t, pods.Add(pod))
	}
	loader := backfill.New(backfill.Config{
		Client: w.client(t), Usage: names(),
		Labels: backfill.Labels{Query: expression, Prefix: "label_", Namespace: "ns", Pod: "pod"},
		Length: length, Step: time.Hour, Store: usage.DefaultConfig(), Results: samples,
		VPAs: &model.Roster{Name: model.DefaultRecommender, VPAs: vpalisters.NewVerticalPodAutoscalerLister(objects), Targets: targets{}},
		Pods: corelisters.NewPodLister(pods),
	}, w.end)
	loader.Run(t.Context())
	progress := loader.Progress()
	require.Equal(t, backfill.Complete, progress.State)
	registry := client.NewRegistry()
	registry.MustRegister(samples)
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	counts := families[0].GetMetric()
	require.Len(t, counts, 1, "no sample is left out")
	require.Equal(t, "accepted", counts[0].GetLabel()[0].GetValue())
	require.EqualValues(t, progress.Samples, counts[0].GetCounter().GetValue())
	parts := loader.Take()
	require.Len(t, parts, 1)
	return parts[0]
}

func recommendations(t *testing.T, model *model.Model, store *usage.Store) map[string][]status.Recommended {
	t.Helper()
	config := recipe.DefaultConfig()
	recipe := recipe.VPA(config)
	shape := usage.DefaultConfig().Shape
	advisor := &recommend.Advisor{Store: store, Shape: shape, Recipe: recipe, Format: convert.Format{CPUStep: 1, MemoryStep: 1}}
	got := map[string][]status.Recommended{}
	for _, v := range model.VPAs() {
		scratch := usage.NewProfile(shape)
		got[v.Object.Name] = advisor.Advise(v, advisor.Estimates(v, &scratch, nil)).Recommendation
	}
	return got
}

// live feeds the same samples to a model one by one, as they would arrive from a metrics API.
func (w *testServer) live(t *testing.T) (*model.Model, *usage.Store) {
	t.Helper()
	store := usage.NewStore(usage.DefaultConfig())
	model := model.NewModel(model.Config{Store: store})
	model.SyncVPAs(vpas(), w.end)
	for _, p := range []*corev1.Pod{testPod(running, "app", "proxy"), testPod("db-0", "app"), testPod(gone, "app")} {
		model.PutPod(p, w.end)
	}
	var samples []usage.Sample
	for k, query := range []string{names().CPU(time.Hour), names().Memory()} {
		samples = append(samples, w.whole(t, resources.Kind(k), query)...)
	}
	slices.SortStableFunc(samples, func(a, b usage.Sample) int { return a.At.Compare(b.At) })
	for _, s := range samples {
		require.Equal(t, usage.Accepted, store.Observe(s), s)
	}
	return model, store
}

func (w *testServer) whole(t *testing.T, k resources.Kind, query string) []usage.Sample {
	t.Helper()
	form := url.Values{"query": {query}, "start": {fmt.Sprint(w.end.Add(-length).Unix())}, "end": {fmt.Sprint(w.end.Unix())}, "step": {"3600"}}
	response, err := http.PostForm(w.address+"/api/v1/query_range", form)
	require.NoError(t, err)
	defer response.Body.Close()
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	var samples []usage.Sample
	for _, series := range answer.Data.Result {
		key := usage.ContainerKey{Namespace: "ns", Pod: series.Metric["pod_name"], Container: series.Metric["name"]}
		for _, point := range series.Values {
			value, err := strconv.ParseFloat(point[1].(string), 64)
			require.NoError(t, err)
			if k == resources.CPU {
				value *= 1000
			}
			samples = append(samples, usage.Sample{Container: key, Kind: k, At: time.Unix(int64(point[0].(float64)), 0).UTC(), Amount: resources.Amount(value)})
		}
	}
	w.known(t, k, samples)
	return samples
}

func (w *testServer) known(t *testing.T, k resources.Kind, samples []usage.Sample) {
	t.Helper()
	c := w.containers[0]
	n := 0
	for _, s := range samples {
		if s.Container.Pod != c.pod || s.Container.Container != c.name {
			continue
		}
		want := resources.Amount(c.bytes(w.hour(s.At)))
		if k == resources.CPU {
			want = resources.Amount(c.cores(w.hour(s.At)) * 1000)
		}
		require.Equal(t, want, s.Amount, s.At)
		n++
	}
	require.Equal(t, 193, n)
}

func TestBackfill_MatchesLiveSamples(t *testing.T) {
	w := newTestServer(t)
	model, store := w.live(t)
	want := recommendations(t, model, store)
	require.Len(t, want["web"], 2)
	require.NotEmpty(t, want["web"][0].Target)
	for name, expression := range map[string]string{
		"labels over time (a matrix)": "pod_labels[8d]",
		"labels of now (a vector)":    "pod_labels",
		"no labels":                   `up{job="kubernetes-pods"}`,
		"a number for labels":         "1",
	} {
		t.Run(name, func(t *testing.T) {
			past := w.load(t, expression)
			require.Equal(t, want, recommendations(t, past.Model, past.Store))
		})
	}
}

func TestLive_ReturnsCurrentUsage(t *testing.T) {
	w := newTestServer(t)
	source := &prometheus.LiveReader{Client: w.client(t), Usage: names(), Window: 15 * time.Minute}
	got := map[usage.ContainerKey]map[resources.Kind]resources.Amount{}
	require.NoError(t, source.Samples(t.Context(), func(s usage.Sample) {
		require.WithinDuration(t, time.Now(), s.At, time.Minute)
		if got[s.Container] == nil {
			got[s.Container] = map[resources.Kind]resources.Amount{}
		}
		got[s.Container][s.Kind] = s.Amount
	}))
	want := map[usage.ContainerKey]map[resources.Kind]resources.Amount{}
	for _, c := range w.containers {
		if c.pod != gone {
			want[usage.ContainerKey{Namespace: "ns", Pod: c.pod, Container: c.name}] = map[resources.Kind]resources.Amount{
				resources.CPU: resources.Amount(c.cores(0) * 1000), resources.Memory: resources.Amount(c.bytes(0))}
		}
	}
	require.Equal(t, want, got)
}
