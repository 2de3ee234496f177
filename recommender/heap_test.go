package recommender

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/pkg/testkit"
)

// BenchmarkHeap reports the live heap after a day of usage. The second figure excludes the caches.
func BenchmarkHeap(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	testkit.MeasureHeap(b, func(b *testing.B, url string, c testkit.Crowd) func() {
		filled := newFilledRecommender(b, url, c)
		caches := testkit.LiveHeap()
		filled.addDay(b)
		b.ReportMetric(float64(testkit.LiveHeap()-caches)/(1<<20), "beside-caches-MiB")
		return filled.close
	})
}

type filledRecommender struct {
	*assembly
	loop    *Loop
	cluster testkit.Crowd
	now     *time.Time
}

func newFilledRecommender(tb testing.TB, url string, c testkit.Crowd) *filledRecommender {
	tb.Helper()
	clients, err := client.New(&rest.Config{Host: url})
	require.NoError(tb, err)
	now := new(start())
	samples := func(_ context.Context, yield func(usage.Sample)) error {
		for i := range c.Pods {
			pod := c.Pod(i)
			for n := range pod.Spec.Containers {
				key := usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: pod.Spec.Containers[n].Name}
				noise := resources.Amount(i*31+int(now.Unix())/60*17) % 97
				yield(usage.Sample{Container: key, Kind: resources.CPU, At: *now, Amount: 50 + 3*noise})
				yield(usage.Sample{Container: key, Kind: resources.Memory, At: *now, Amount: (200 + noise) << 20})
			}
		}
		return nil
	}
	a := newAssembly(tb.Context(), Default(), dependencies{
		clients: clients, policies: clients.VPA, usageSource: usageSource{sampleSource: samplesFunc(samples)}, scale: client.NewScales(clients.Kube),
		metrics: newMetrics(prometheus.NewRegistry()), health: serving.NewHealth(time.Hour), now: func() time.Time { return *now },
	})
	loop, err := a.start()
	require.NoError(tb, err)
	return &filledRecommender{a, loop, c, now}
}

func (f *filledRecommender) addDay(tb testing.TB) {
	f.loop.firstIteration = *f.now
	f.loop.loadVPAs(tb.Context(), *f.now, minRestoreTime)
	f.loop.loadPods(*f.now)
	for range 4 {
		*f.now = f.now.Add(6 * time.Hour)
		f.loop.addUsage(tb.Context(), *f.now)
		f.loop.deleteRemovedPods()
	}
	require.Len(tb, f.loop.Model.VPAs(), f.cluster.Deployments)
	for _, v := range f.loop.Model.VPAs() {
		require.Equal(tb, f.cluster.UnderAPolicy, v.Sizing.Policy != "")
	}
}

func (f *filledRecommender) close() {
	f.loop.loadPods(*f.now)
	f.stop()
}
