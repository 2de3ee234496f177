package checkpoint

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
)

func now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

func shape() profile.Shape { return profile.NewShape(24*time.Hour, 24*time.Hour) }

// image is that of n CPU samples a minute apart, and a memory peak.
func image(n int) profile.Image {
	p := profile.New(shape())
	for i := range n {
		p.AddCPU(0.3, now().Add(time.Duration(i)*time.Minute))
	}
	p.AddPeak(5e8, now())
	return p.Image()
}

func object(vpa, container string, samples int) *vpav1.VerticalPodAutoscalerCheckpoint {
	return &vpav1.VerticalPodAutoscalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: vpa + "-" + container},
		Spec:       vpav1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: vpa, ContainerName: container},
		Status:     Status(image(samples), now()),
	}
}

// bench is a Saver with a fake server whose objects are in its cache.
type bench struct {
	*Saver
	client *fake.Clientset
	cache  cache.Indexer
}

func newBench(objects ...*vpav1.VerticalPodAutoscalerCheckpoint) bench {
	client := fake.NewSimpleClientset()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, o := range objects {
		_ = client.Tracker().Add(o)
		_ = indexer.Add(o)
	}
	saver := NewSaver(Config{Client: client, Lister: listers.NewVerticalPodAutoscalerCheckpointLister(indexer), Workers: 2, Expiry: 8 * 24 * time.Hour})
	return bench{saver, client, indexer}
}

func item(vpa string, images map[string]profile.Image) Item {
	return Item{Owner{"ns", vpa}, func() map[string]profile.Image { return images }}
}

func (b bench) stored(t *testing.T, name string) *vpav1.VerticalPodAutoscalerCheckpoint {
	c, err := b.client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return c
}

func TestImageSurvivesTheObject(t *testing.T) {
	want := image(50)
	status := Status(want, now())
	require.Equal(t, "v3", status.Version)
	got, err := Image(&status)
	require.NoError(t, err)
	p := profile.New(shape())
	require.NoError(t, p.Load(got))
	require.Equal(t, want.Samples, p.Samples())
	require.Equal(t, want.CPU.Weights, p.Image().CPU.Weights)
}

func TestCreateThenPatchThenNothing(t *testing.T) {
	b := newBench()
	items := func(n int) []Item { return []Item{item("web", map[string]profile.Image{"a": image(n)})} }
	r := b.Save(t.Context(), items(10), now(), time.Minute)
	require.NoError(t, r.Err)
	require.Equal(t, 1, r.Written)
	require.Equal(t, 10, b.stored(t, "web-a").Status.TotalSamplesCount)
	require.NoError(t, b.cache.Add(b.stored(t, "web-a")))

	r = b.Save(t.Context(), items(20), now(), time.Minute)
	require.NoError(t, r.Err)
	require.Equal(t, 20, b.stored(t, "web-a").Status.TotalSamplesCount)

	b.client.ClearActions()
	r = b.Save(t.Context(), items(20), now().Add(time.Hour), time.Minute)
	require.NoError(t, r.Err)
	require.Equal(t, 1, r.Unchanged)
	require.Empty(t, b.client.Actions(), "nothing changed, so there is no call")
}

func TestNameClashIsToldAndNothingIsOverwritten(t *testing.T) {
	b := newBench(object("a", "b-c", 500))
	r := b.Save(t.Context(), []Item{item("a-b", map[string]profile.Image{"c": image(3), "d": image(3)})}, now(), time.Minute)
	require.ErrorIs(t, r.Err, ErrClash)
	require.ErrorContains(t, r.Err, "ns/a-b-c")
	require.Equal(t, 1, r.Written, "the other container is saved")
	require.Equal(t, 500, b.stored(t, "a-b-c").Status.TotalSamplesCount)
}

func TestNameClashIsFoundEvenIfTheCacheIsBehind(t *testing.T) {
	b := newBench()
	require.NoError(t, b.client.Tracker().Add(object("a", "b-c", 500)))
	r := b.Save(t.Context(), []Item{item("a-b", map[string]profile.Image{"c": image(3)})}, now(), time.Minute)
	require.Error(t, r.Err)
	require.Equal(t, 500, b.stored(t, "a-b-c").Status.TotalSamplesCount)
}

func TestPoorHistoryDoesNotReplaceAGoodOne(t *testing.T) {
	save := func(b bench, at time.Time) Result {
		return b.Save(t.Context(), []Item{item("web", map[string]profile.Image{"a": image(3)})}, at, time.Minute)
	}
	b := newBench(object("web", "a", 500))
	require.ErrorIs(t, save(b, now()).Err, ErrPoorer)
	require.Equal(t, 500, b.stored(t, "web-a").Status.TotalSamplesCount)
	require.NoError(t, save(b, now().Add(9*24*time.Hour)).Err, "an old one no longer counts")

	b = newBench(object("web", "a", 500))
	b.Know(History{Owner{"ns", "web"}: {"a": nil}})
	require.NoError(t, save(b, now()).Err, "what was loaded is part of what is saved")
}

func TestSaveStopsAtItsDeadlineAndGoesOnWhereItStopped(t *testing.T) {
	b := newBench()
	b.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		time.Sleep(20 * time.Millisecond)
		return false, nil, nil
	})
	var items []Item
	for _, name := range strings.Fields("a b c d e f g h") {
		items = append(items, item(name, map[string]profile.Image{"x": image(3)}))
	}
	r := b.Save(t.Context(), items, now(), time.Millisecond)
	require.Equal(t, 2, r.Written, "one for each worker")
	require.Equal(t, 6, r.Late)
	r = b.Save(t.Context(), items, now().Add(time.Minute), time.Minute)
	require.Equal(t, 8, r.Written+r.Unchanged)
	list, err := b.client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 8)
}

func TestOneFailureDoesNotStopTheOthers(t *testing.T) {
	b := newBench()
	b.client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.(clienttesting.PatchAction).GetName() == "bad-x", nil, errors.New("refused")
	})
	r := b.Save(t.Context(), []Item{item("bad", map[string]profile.Image{"x": image(1)}), item("good", map[string]profile.Image{"x": image(1)})}, now(), time.Minute)
	require.ErrorContains(t, r.Err, "save checkpoint ns/bad-x: refused")
	require.Equal(t, 1, r.Written)
}

func TestLoadTakesTheGoodAndReportsTheBad(t *testing.T) {
	version, negative, bucket, total := object("web", "version", 5), object("web", "negative", 5), object("web", "bucket", 5), object("web", "total", 5)
	version.Status.Version = "v4"
	negative.Status.TotalSamplesCount = -1
	bucket.Status.CPUHistogram.BucketWeights[176] = 1
	total.Status.MemoryHistogram.TotalWeight = -1
	b := newBench(object("web", "good", 5), object("not-ours", "good", 5), version, negative, bucket, total)
	var bad []string
	history, err := (&Loader{
		Client: b.client, Shape: shape(),
		Wanted: func(o Owner) bool { return o.VPA == "web" },
		Report: func(object string, err error) { require.Error(t, err); bad = append(bad, object) },
	}).Load(t.Context())
	require.NoError(t, err)
	require.Len(t, history, 1)
	require.Len(t, history[Owner{"ns", "web"}], 1)
	require.EqualValues(t, 5, history[Owner{"ns", "web"}]["good"].Samples())
	require.ElementsMatch(t, []string{"ns/web-version", "ns/web-negative", "ns/web-bucket", "ns/web-total"}, bad)
}

func TestLoadFailsAsAWhole(t *testing.T) {
	b := newBench(object("web", "good", 5))
	b.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	_, err := (&Loader{Client: b.client, Shape: shape()}).Load(t.Context())
	require.EqualError(t, err, "list checkpoints: away")
}

func TestLoadIsRepeatedUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(object("web", "good", 5))
		calls := 0
		b.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			calls++
			return calls < 4, nil, errors.New("away")
		})
		l := &Loader{Client: b.client, Shape: shape(), Wanted: func(Owner) bool { return true }}
		history, err := l.LoadInTheEnd(t.Context())
		require.NoError(t, err)
		require.Len(t, history, 1)
		require.Equal(t, 4, calls)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		calls = -1000
		_, err = l.LoadInTheEnd(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestCollectDeletesWhatItIsToldAndGoesOnAfterAFailure(t *testing.T) {
	b := newBench(object("a", "x", 1), object("b", "x", 1), object("c", "x", 1))
	b.client.PrependReactor("delete", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.(clienttesting.DeleteAction).GetName() == "a-x", nil, errors.New("refused")
	})
	n, err := b.Collect(t.Context(), func(c *vpav1.VerticalPodAutoscalerCheckpoint) Fate {
		if c.Spec.VPAObjectName == "c" {
			return Keep
		}
		return Orphan
	})
	require.ErrorContains(t, err, "delete checkpoint ns/a-x: refused")
	require.Equal(t, 1, n)
	require.Equal(t, 1, b.stored(t, "c-x").Status.TotalSamplesCount)
}

func TestTrimKeepsWhatDecidesWithoutTheHistograms(t *testing.T) {
	trimmed, err := Trim(object("web", "a", 5))
	require.NoError(t, err)
	c := trimmed.(*vpav1.VerticalPodAutoscalerCheckpoint)
	require.Equal(t, "web", c.Spec.VPAObjectName)
	require.Equal(t, 5, c.Status.TotalSamplesCount)
	require.Empty(t, c.Status.CPUHistogram.BucketWeights)
	require.True(t, Stale(c, time.Hour, now().Add(2*time.Hour)))
	require.False(t, Stale(c, time.Hour, now().Add(time.Minute)))
}

func TestWhatIsKnownOfCheckpointsEndsWithThem(t *testing.T) {
	b := newBench()
	require.NoError(t, b.Save(t.Context(), []Item{item("web", map[string]profile.Image{"a": image(3)})}, now(), time.Minute).Err)
	b.Know(History{Owner{"ns", "web"}: {"b": nil}})
	require.NoError(t, b.cache.Add(b.stored(t, "web-a")))
	keep := func(*vpav1.VerticalPodAutoscalerCheckpoint) Fate { return Keep }
	_, err := b.Collect(t.Context(), keep)
	require.NoError(t, err)
	require.Len(t, b.written, 1)
	require.Empty(t, b.known, "there is no web-b")

	require.NoError(t, b.cache.Delete(b.stored(t, "web-a"))) // with its namespace
	_, err = b.Collect(t.Context(), keep)
	require.NoError(t, err)
	require.Empty(t, b.written)
}
