package recommender

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

func now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

func newIngester(source func(context.Context, func(usage.Sample)) error) *Ingester {
	counter := func(labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, labels)
	}
	store := usage.NewStore(usage.DefaultConfig())
	cluster := model.NewModel(model.Config{Store: store})
	cluster.PutPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}},
	}, now())
	return &Ingester{
		Source: samplesFunc(source), Timeout: time.Second, OOMs: &model.KillQueue{}, Store: store, Model: cluster,
		Quality: recommend.NewQuality(prometheus.NewRegistry()), Samples: counter("result"), Kills: counter("result"), Responses: counter("is_error", "client_name"),
	}
}

func key(container string) usage.ContainerKey {
	return usage.ContainerKey{Namespace: "ns", Pod: "p", Container: container}
}

func TestIngester_CountsSampleResults(t *testing.T) {
	i := newIngester(func(_ context.Context, yield func(usage.Sample)) error {
		yield(usage.Sample{Container: key("a"), At: now(), Amount: 5})
		yield(usage.Sample{Container: key("a"), At: now(), Amount: 5})
		yield(usage.Sample{Container: key("a"), At: now().Add(time.Minute), Amount: -1})
		yield(usage.Sample{Container: key("sidecar"), At: now(), Amount: 5})
		yield(usage.Sample{Container: key("a"), At: time.Time{}, Amount: 5})
		return nil
	})
	i.RunOnce(t.Context(), now())
	for result, want := range map[string]float64{"accepted": 1, "not_newer": 1, "negative": 1, "unknown_container": 1, "out_of_range": 1} {
		require.Equal(t, want, testutil.ToFloat64(i.Samples.WithLabelValues(result)), result)
	}
}

func TestIngester_StoresKillsWithoutMetrics(t *testing.T) {
	i := newIngester(func(context.Context, func(usage.Sample)) error { return errors.New("down") })
	i.OOMs.Add(usage.OOM{Container: key("a"), At: now(), Memory: 1 << 30})
	i.RunOnce(t.Context(), now())
	require.Equal(t, 1.0, testutil.ToFloat64(i.Kills.WithLabelValues("accepted")))
	require.Equal(t, 1.0, testutil.ToFloat64(i.Responses.WithLabelValues("true", sourceName)))
	peak, _, found := i.Store.Peak(key("a"))
	require.True(t, found)
	require.Greater(t, peak, resources.Amount(1<<30))
}

type brokenLog struct{}

func (brokenLog) Init(klog.RuntimeInfo)            {}
func (brokenLog) Enabled(int) bool                 { return true }
func (brokenLog) Info(int, string, ...any)         { panic("a defect") }
func (brokenLog) Error(error, string, ...any)      { panic("a defect") }
func (l brokenLog) WithValues(...any) klog.LogSink { return l }
func (l brokenLog) WithName(string) klog.LogSink   { return l }

func TestIngester_RecoversPanicOfOneKill(t *testing.T) {
	i := newIngester(nil)
	panics := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"step"})
	i.Guard = model.NewGuard("kills", panics)
	for _, id := range []string{"1", "2"} {
		i.OOMs.Add(usage.OOM{Container: key("a"), ID: id, At: now(), Memory: 1 << 30})
	}
	i.StoreKills(klog.New(brokenLog{}), now())
	require.Equal(t, 2.0, testutil.ToFloat64(panics))
	require.Equal(t, 2.0, testutil.ToFloat64(i.Kills.WithLabelValues("accepted")))
}

func TestIngester_TimesOutHungSource(t *testing.T) {
	i := newIngester(func(ctx context.Context, _ func(usage.Sample)) error { <-ctx.Done(); return ctx.Err() })
	i.Timeout = time.Millisecond
	i.RunOnce(t.Context(), now())
	require.Equal(t, 1.0, testutil.ToFloat64(i.Responses.WithLabelValues("true", sourceName)))
}

// Only accepted samples of containers with a VPA count.
func TestIngester_UpdatesWorkloadQuality(t *testing.T) {
	i := newIngester(func(_ context.Context, yield func(usage.Sample)) error {
		for _, used := range []resources.Amount{300, 900} { // the second is not newer
			yield(usage.Sample{Container: key("a"), At: now(), Amount: used})
		}
		yield(usage.Sample{Container: key("sidecar"), At: now(), Amount: 5})
		return nil
	})
	registry := prometheus.NewRegistry()
	i.Quality.Workloads = recommend.NewWorkloadQuality(registry)
	object := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}
	object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "a", Target: corev1.ResourceList{"cpu": resource.MustParse("600m"), "memory": resource.MustParse("1Gi")}}}}
	i.Model.SyncVPAs([]model.Observed{{Object: object, Selector: labels.Everything()}}, now())
	i.OOMs.Add(usage.OOM{Container: key("a"), At: now(), Memory: 1 << 30})
	i.RunOnce(t.Context(), now())
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP loadline_workload_ooms_since_change Out-of-memory kills and evictions since the memory target changed.
# TYPE loadline_workload_ooms_since_change gauge
loadline_workload_ooms_since_change{container="a",namespace="ns",resource="memory",vpa="v"} 1
# HELP loadline_workload_peak_ratio Highest usage sample since the target changed / target.
# TYPE loadline_workload_peak_ratio gauge
loadline_workload_peak_ratio{container="a",namespace="ns",resource="cpu",vpa="v"} 0.5
`), "loadline_workload_ooms_since_change", "loadline_workload_peak_ratio"))
}

// Otherwise, a node with a clock ahead of time devalues all other samples.
func TestIngester_DropsFutureSamplesAndKills(t *testing.T) {
	ahead := now().Add(365 * 24 * time.Hour)
	i := newIngester(func(_ context.Context, yield func(usage.Sample)) error {
		for k := range resources.Kind(resources.Kinds) {
			yield(usage.Sample{Container: key("a"), Kind: k, At: ahead, Amount: 5})
			yield(usage.Sample{Container: key("a"), Kind: k, At: now().Add(time.Minute), Amount: 5})
		}
		return nil
	})
	i.OOMs.Add(usage.OOM{Container: key("a"), At: ahead, Memory: 1 << 30})
	i.RunOnce(t.Context(), now())
	require.Equal(t, 2.0, testutil.ToFloat64(i.Samples.WithLabelValues("accepted")), "a little ahead is no harm")
	require.Equal(t, 2.0, testutil.ToFloat64(i.Samples.WithLabelValues("in_future")))
	require.Equal(t, 1.0, testutil.ToFloat64(i.Kills.WithLabelValues("in_future")))
	_, end, found := i.Store.Peak(key("a"))
	require.True(t, found)
	require.True(t, end.Before(ahead))
}
