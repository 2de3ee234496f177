package ingest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/feed"
	"loadline.dev/loadline/recommender/intake"
)

func now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

func newIngester(source func(context.Context, func(usage.Sample)) error) *Ingester {
	counter := func(labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, labels)
	}
	store := usage.New(usage.DefaultConfig())
	model := feed.NewModel(feed.Config{Store: store})
	model.PutPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}},
	}, now())
	return &Ingester{
		Source: source, Timeout: time.Second, OOMs: &intake.OOMs{}, Store: store, Model: model,
		Quality: NewQuality(prometheus.NewRegistry()), Samples: counter("result"), Kills: counter("result"), Responses: counter("is_error", "client_name"),
	}
}

func key(container string) usage.ContainerKey {
	return usage.ContainerKey{Namespace: "ns", Pod: "p", Container: container}
}

func TestWhatBecameOfEachSampleIsCounted(t *testing.T) {
	i := newIngester(func(_ context.Context, yield func(usage.Sample)) error {
		yield(usage.Sample{Container: key("a"), At: now(), Amount: 5})
		yield(usage.Sample{Container: key("a"), At: now(), Amount: 5})
		yield(usage.Sample{Container: key("a"), At: now().Add(time.Minute), Amount: -1})
		yield(usage.Sample{Container: key("sidecar"), At: now(), Amount: 5})
		yield(usage.Sample{Container: key("a"), At: time.Time{}, Amount: 5})
		return nil
	})
	i.Once(t.Context(), now())
	for result, want := range map[string]float64{"taken": 1, "not_newer": 1, "negative": 1, "unknown_container": 1, "out_of_range": 1} {
		require.Equal(t, want, testutil.ToFloat64(i.Samples.WithLabelValues(result)), result)
	}
}

func TestKillsAreTakenEvenWithoutMetrics(t *testing.T) {
	i := newIngester(func(context.Context, func(usage.Sample)) error { return errors.New("down") })
	i.OOMs.Add(usage.OOM{Container: key("a"), At: now(), Memory: 1 << 30})
	i.Once(t.Context(), now())
	require.Equal(t, 1.0, testutil.ToFloat64(i.Kills.WithLabelValues("taken")))
	require.Equal(t, 1.0, testutil.ToFloat64(i.Responses.WithLabelValues("true", sourceName)))
	peak, _, found := i.Store.Peak(key("a"))
	require.True(t, found)
	require.Greater(t, peak, amount.Amount(1<<30))
}

func TestSourceThatHangsIsGivenUp(t *testing.T) {
	i := newIngester(func(ctx context.Context, _ func(usage.Sample)) error { <-ctx.Done(); return ctx.Err() })
	i.Timeout = time.Millisecond
	i.Once(t.Context(), now())
	require.Equal(t, 1.0, testutil.ToFloat64(i.Responses.WithLabelValues("true", sourceName)))
}

func TestSizeLabel(t *testing.T) {
	for pods, want := range map[int]string{0: "0", 1: "0", 2: "1", 3: "1", 1024: "10", 1 << 25: "20"} {
		require.Equal(t, want, size(pods))
	}
}

// A node whose clock is ahead would otherwise make all that was seen before, and
// all that comes until then, weigh nothing.
func TestWhatComesFromTheFutureDoesNotCount(t *testing.T) {
	ahead := now().Add(365 * 24 * time.Hour)
	i := newIngester(func(_ context.Context, yield func(usage.Sample)) error {
		for k := range amount.Kind(amount.Kinds) {
			yield(usage.Sample{Container: key("a"), Kind: k, At: ahead, Amount: 5})
			yield(usage.Sample{Container: key("a"), Kind: k, At: now().Add(time.Minute), Amount: 5})
		}
		return nil
	})
	i.OOMs.Add(usage.OOM{Container: key("a"), At: ahead, Memory: 1 << 30})
	i.Once(t.Context(), now())
	require.Equal(t, 2.0, testutil.ToFloat64(i.Samples.WithLabelValues("taken")), "a little ahead is no harm")
	require.Equal(t, 2.0, testutil.ToFloat64(i.Samples.WithLabelValues("in_future")))
	require.Equal(t, 1.0, testutil.ToFloat64(i.Kills.WithLabelValues("in_future")))
	_, end, found := i.Store.Peak(key("a"))
	require.True(t, found)
	require.True(t, end.Before(ahead))
}
