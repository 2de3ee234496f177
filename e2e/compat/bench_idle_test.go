package compat

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/recommender/checkpoints"
)

// One iteration over 1,000 VPAs without new data. Upstream recomputes every recommendation,
// Loadline checks for changes first.
func BenchmarkNothingNew(b *testing.B) {
	f := newFleet(5000)
	u, l := grown(b, f)
	u.publish(b, f)
	l.publish(b, dayOne)
	l.publish(b, dayOne)
	inPairs(b, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			u.publish(b, f)
		}
		perVPA(b, f)
	}, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.publish(b, dayOne)
		}
		perVPA(b, f)
	})
}

// grown returns both recommenders after a hundred ticks of a fleet, ten minutes apart.
func grown(b *testing.B, f fleet) (*upstream, *loadline) {
	u, l := upstreamFleet(b, f, true), loadlineFleet(b, f, true)
	f.addToUpstream(u)
	addToLoadline(l, f.objects())
	for tick := range 100 {
		f.tickUpstream(u, 10*tick)
		f.tickLoadline(l, 10*tick)
	}
	return u, l
}

// Checkpoints of 400 VPAs without new data, with in-memory servers. Upstream scans all pods for
// each VPA, which limits the number of VPAs.
func BenchmarkCheckpointsIdle(b *testing.B) {
	f := newFleet(2000)
	u, l := grown(b, f)
	client, indexer := fake.NewSimpleClientset(), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	saver := checkpoints.NewSaver(checkpoints.Config{
		Client: client, Lister: listers.NewVerticalPodAutoscalerCheckpointLister(indexer), Workers: 1, Expiry: 8 * 24 * time.Hour,
		Interval: 10 * time.Minute, Timeout: time.Hour, Advisor: l.advisor,
	})
	save := func(scope checkpoints.Scope, now time.Time) checkpoints.Result {
		return saver.Save(b.Context(), l.model.VPAs(), scope, now, time.Hour)
	}
	require.NoError(b, save(checkpoints.All, dayOne).Err)
	written, err := client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("").List(b.Context(), metav1.ListOptions{})
	require.NoError(b, err)
	require.Len(b, written.Items, len(f.vpas)*containersPerPod)
	for i := range written.Items {
		require.NoError(b, indexer.Add(&written.Items[i]))
	}
	client.ClearActions()
	later := dayOne
	perVPA := func(b *testing.B, before uint64) {
		perVPA(b, f)
		b.ReportMetric(float64(mallocs()-before)/float64(b.N)/float64(len(f.vpas)), "allocs/VPA")
	}
	inPairs(b, func(b *testing.B) {
		b.ReportAllocs()
		before := mallocs()
		for b.Loop() {
			u.writer.StoreCheckpoints(b.Context(), 1)
		}
		perVPA(b, before)
	}, func(b *testing.B) {
		b.ReportAllocs()
		before := mallocs()
		for b.Loop() {
			later = later.Add(time.Minute)
			require.Zero(b, save(checkpoints.Due, later))
		}
		perVPA(b, before)
	})
	require.Empty(b, client.Actions())
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func perVPA(b *testing.B, f fleet) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(f.vpas)), "ns/VPA")
}
