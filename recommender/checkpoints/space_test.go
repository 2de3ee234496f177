package checkpoints

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/model"
)

// fillNamespace sets the stored bytes with checkpoints of other VPAs.
func (b fixture) fillNamespace(t *testing.T, bytes int) {
	t.Helper()
	require.True(t, b.reserve(name{"ns", "others"}, bytes-b.Saver.stored.totals["ns"], false))
}

func TestSave_LimitsNamespaceBytes(t *testing.T) {
	b := newFixture()
	first := b.setContents("first", map[string]checkpoint.Content{"a": content(10)})
	require.NoError(t, b.save(t, now(), first).Err)
	require.NoError(t, b.cache.Add(b.stored(t, "first-a")))
	b.fillNamespace(t, maxNamespaceBytes)

	b.setContents("first", map[string]checkpoint.Content{"a": content(123456)})
	full, other := b.setContents("full", map[string]checkpoint.Content{"a": content(10)}), b.setContents("other", map[string]checkpoint.Content{"a": content(10)})
	other.Object.Namespace = "quiet"
	r := b.save(t, now(), first, full, other)
	require.NoError(t, r.Err)
	require.ErrorIs(t, r.Full, ErrNamespaceFull)
	require.ErrorContains(t, r.Full, "ns/full-a")
	require.Equal(t, 2, r.Written, "the checkpoint that is stored, though it grows, and that of another namespace")
	require.Equal(t, 123456, b.stored(t, "first-a").Status.TotalSamplesCount)

	_, err := b.Collect(t.Context(), func(*vpav1.VerticalPodAutoscalerCheckpoint) Disposition { return Keep })
	require.NoError(t, err)
	require.NoError(t, b.save(t, now().Add(time.Hour), []*model.VPA{full}...).Full, "the others are gone")
}

type handlerRecorder struct {
	cache.SharedInformer
	handler cache.ResourceEventHandler
}

func (i *handlerRecorder) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = h
	return nil, nil
}

func TestSave_NamespaceLimitGrowsWithPods(t *testing.T) {
	b := newFixture()
	b.Writes = client.NewWriteLimiter(client.RecommenderWrites, prometheus.NewRegistry())
	var pods handlerRecorder
	require.NoError(t, b.Writes.WatchPods(&pods))
	b.fillNamespace(t, maxNamespaceBytes)
	vpa := b.setContents("web", map[string]checkpoint.Content{"a": content(10)})
	require.ErrorIs(t, b.save(t, now(), vpa).Full, ErrNamespaceFull)
	for range 10000 {
		pods.handler.OnAdd(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}, false)
	}
	require.NoError(t, b.save(t, now().Add(time.Hour), vpa).Full)
	require.Equal(t, 10, b.stored(t, "web-a").Status.TotalSamplesCount)
}

// One full namespace must not keep the alert on failed checkpoints firing.
func TestMaintainer_CountsFullNamespacesSeparately(t *testing.T) {
	b := newFixture()
	b.fillNamespace(t, maxNamespaceBytes)
	results := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"result"})
	cluster := model.NewModel(model.Config{Store: usage.NewStore(usage.DefaultConfig())})
	u := &Maintainer{Saver: b.Saver, Model: cluster, Results: results}
	cluster.SyncVPAs([]model.Observed{{Object: b.setContents("web", map[string]checkpoint.Content{"a": content(10)}).Object}}, now())
	u.Save(t.Context(), All, now(), time.Minute)
	require.EqualValues(t, 1, testutil.ToFloat64(results.WithLabelValues("namespace_full")))
	require.Zero(t, testutil.ToFloat64(results.WithLabelValues("error")))
}

// VPAs of a write-limited namespace stay unmarked and come early in the next save.
func TestSave_DefersWriteLimitedNamespace(t *testing.T) {
	b := newFixture()
	b.Workers = 1
	limited, asked := true, 0
	b.client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() != "ns" || !limited {
			return false, nil, nil
		}
		asked++
		refusal := apierrors.NewTooManyRequestsError("not sent")
		refusal.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "LoadlineWriteLimit"}}}
		require.True(t, client.IsWriteLimited(refusal))
		return true, nil, refusal
	})
	all := make([]*model.VPA, 0, 6)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, b.setContents(name, map[string]checkpoint.Content{"x": content(1)}))
	}
	other := b.setContents("other", map[string]checkpoint.Content{"x": content(1)})
	other.Object.Namespace = "quiet"
	r := b.save(t, now(), append(all, other)...)
	require.NoError(t, r.Err)
	require.Equal(t, 1, r.Written)
	require.Equal(t, 5, r.Late)
	require.Equal(t, 1, asked, "the rest of the namespace waits without requests")
	for _, v := range all {
		require.False(t, v.Saved.Failed)
		require.False(t, v.Saved.Unsaved)
	}
	limited = false
	require.Equal(t, 5, b.save(t, now().Add(time.Hour), all...).Written)
}
