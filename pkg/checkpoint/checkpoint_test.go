package checkpoint

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/target"
)

func now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

func shape() usage.ProfileShape { return usage.NewProfileShape(24*time.Hour, 24*time.Hour) }

func image(n int) usage.ProfileImage {
	p := usage.NewProfile(shape())
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

type fakeServer struct{ client *fake.Clientset }

func newFakeServer(objects ...*vpav1.VerticalPodAutoscalerCheckpoint) fakeServer {
	b := fakeServer{fake.NewSimpleClientset()}
	for _, o := range objects {
		_ = b.client.Tracker().Add(o)
	}
	return b
}

func TestStatus_RoundTripsImage(t *testing.T) {
	want := image(50)
	status := Status(want, now())
	require.Equal(t, "v3", status.Version)
	got, err := Image(&status)
	require.NoError(t, err)
	p := usage.NewProfile(shape())
	require.NoError(t, p.Load(got))
	require.Equal(t, want.Samples, p.Samples())
	require.Equal(t, want.CPU.Weights, p.Image().CPU.Weights)
}

func all(Owner) bool { return true }

func TestLoad_ReportsInvalidCheckpoints(t *testing.T) {
	version, negative, bucket, total := object("web", "version", 5), object("web", "negative", 5), object("web", "bucket", 5), object("web", "total", 5)
	version.Status.Version = "v4"
	negative.Status.TotalSamplesCount = -1
	bucket.Status.CPUHistogram.BucketWeights[176] = 1
	total.Status.MemoryHistogram.TotalWeight = -1
	b := newFakeServer(object("web", "good", 5), object("not-ours", "good", 5), version, negative, bucket, total)
	history, problems, err := (&Loader{Client: b.client, Shape: shape()}).Load(t.Context(), func(o Owner) bool { return o.VPA == "web" }, now())
	require.NoError(t, err)
	var bad []string
	for _, p := range problems {
		require.Error(t, p.Err)
		bad = append(bad, p.Object)
	}
	require.Len(t, history, 1)
	require.Len(t, history[Owner{"ns", "web"}], 1)
	require.EqualValues(t, 5, history[Owner{"ns", "web"}]["good"].Profile.Samples())
	require.ElementsMatch(t, []string{"ns/web-version", "ns/web-negative", "ns/web-bucket", "ns/web-total"}, bad)
}

// Memory peaks may arrive before the first CPU sample.
func TestLoad_AcceptsCheckpointWithoutCPUSamples(t *testing.T) {
	history, problems, err := (&Loader{Client: newFakeServer(object("web", "a", 0)).client, Shape: shape()}).Load(t.Context(), all, now())
	require.NoError(t, err)
	require.Empty(t, problems)
	p := history[Owner{"ns", "web"}]["a"].Profile
	require.NotNil(t, p)
	require.Zero(t, p.Samples())
	require.Greater(t, p.Memory.Quantile(0.5), 4e8)
}

func TestLoad_FailsIfListFails(t *testing.T) {
	b := newFakeServer(object("web", "good", 5))
	b.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	_, _, err := (&Loader{Client: b.client, Shape: shape()}).Load(t.Context(), all, now())
	require.EqualError(t, err, "list checkpoints: away")
}

func TestLoadWithRetry_RetriesUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeServer(object("web", "good", 5))
		calls := 0
		b.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			calls++
			return calls < 4, nil, errors.New("away")
		})
		l := &Loader{Client: b.client, Shape: shape()}
		history, _, err := l.LoadWithRetry(t.Context(), all, now)
		require.NoError(t, err)
		require.Len(t, history, 1)
		require.Equal(t, 4, calls)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		calls = -1000
		_, _, err = l.LoadWithRetry(ctx, all, now)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestTrimCheckpoint_DropsHistograms(t *testing.T) {
	trimmed, err := Trim(object("web", "a", 5))
	require.NoError(t, err)
	c := trimmed.(*vpav1.VerticalPodAutoscalerCheckpoint)
	require.Equal(t, "web", c.Spec.VPAObjectName)
	require.Equal(t, 5, c.Status.TotalSamplesCount)
	require.Empty(t, c.Status.CPUHistogram.BucketWeights)
	require.Empty(t, c.Annotations)
	for _, some := range []map[string]string{{"x": "1"}, {"x": "1", "y": "2"}} {
		annotated := object("web", "a", 5)
		annotated.Annotations = some
		trimmed, err = Trim(annotated)
		require.NoError(t, err)
		require.Len(t, trimmed.(*vpav1.VerticalPodAutoscalerCheckpoint).Annotations, 1, "that there are some decides how they are written")
	}
}

// A checkpoint with an unchanged hash is not written again.
func TestRecordHash_CoversEverythingButTime(t *testing.T) {
	contents := map[string]Content{
		"nothing": {Image: image(3)},
		"samples": {Image: image(4)},
		"windows": {Image: image(3), Windows: map[string]usage.Window{"web-1": {End: now(), Usage: 5, OOM: -1}}},
		"a kill":  {Image: image(3), Windows: map[string]usage.Window{"web-1": {End: now(), Usage: 5, OOM: -1, Kill: now()}}},
		"sketch":  {Image: image(3), Sketch: []byte{1}},
		"target":  {Image: image(3), Target: target.Key{Namespace: "ns", Kind: "Deployment", Name: "web"}},
	}
	sums := map[uint64]string{}
	for name, c := range contents {
		r, err := NewRecord(Owner{"ns", "web"}, "a", c, now())
		require.NoError(t, err)
		require.Empty(t, sums[r.Hash], "%s", name)
		sums[r.Hash] = name
		later, err := NewRecord(Owner{"ns", "web"}, "a", c, now().Add(time.Hour))
		require.NoError(t, err)
		require.Equal(t, r.Hash, later.Hash, name)
	}
}

// The API server evaluates the tests of a patch before its other operations.
func TestRecordPatch_KeepsForeignAnnotations(t *testing.T) {
	r, err := NewRecord(Owner{"ns", "web"}, "a", Content{Image: image(9)}, now())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		stored  *vpav1.VerticalPodAutoscalerCheckpoint
		foreign map[string]string
		expects bool // assumes that the object has annotations
		fails   bool
	}{
		"of an object with annotations":        {object("web", "a", 1), map[string]string{"x": "stays"}, true, false},
		"without them":                         {object("web", "a", 1), nil, false, false},
		"that expects some":                    {object("web", "a", 1), nil, true, true},
		"that expects none":                    {object("web", "a", 1), map[string]string{"x": "stays"}, false, true},
		"of the checkpoint of another VPA":     {clash("other", "a"), nil, false, true},
		"of that of another container of ours": {clash("web", "other"), nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.stored.Annotations = c.foreign
			client := newFakeServer(c.stored).client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns")
			patch, err := r.Patch(c.expects)
			require.NoError(t, err)
			got, err := client.Patch(t.Context(), "web-a", types.JSONPatchType, patch, metav1.PatchOptions{})
			if c.fails {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, 9, got.Status.TotalSamplesCount)
			require.Contains(t, got.Annotations, OpenWindows)
			require.Len(t, got.Annotations, len(c.foreign)+1)
			require.Equal(t, c.foreign["x"], got.Annotations["x"])
		})
	}
}

// clash returns an object named web-a that is the checkpoint of another VPA or container.
func clash(vpa, container string) *vpav1.VerticalPodAutoscalerCheckpoint {
	c := object(vpa, container, 1)
	c.Name = "web-a"
	return c
}
