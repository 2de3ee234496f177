package compat

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/recommender/checkpoint"
)

// A pass over 1,000 VPAs of which nothing is new. Upstream recommends all the
// same; ours looks whether the revision of a VPA changed.
func BenchmarkNothingNew(b *testing.B) {
	f := newFleet(5000)
	b.Run("upstream", func(b *testing.B) {
		u := upstreamFleet(b, f, true)
		f.addToUpstream(u)
		for tick := range 100 {
			f.tickUpstream(u, 10*tick)
		}
		b.ReportAllocs()
		for b.Loop() {
			for _, p := range f.vpas {
				u.recommend(b, p, p.versions[0])
			}
		}
		perVPA(b, f)
	})
	b.Run("loadline", func(b *testing.B) {
		l := loadlineFleet(b, f, true)
		addToLoadline(l, f.objects())
		for tick := range 100 {
			f.tickLoadline(l, 10*tick)
		}
		handled := map[any]uint64{}
		pass := func() {
			for _, v := range l.model.VPAs() {
				revised, ok := any(v).(interface{ Revision() uint64 })
				if !ok {
					b.Skip("VPAs have no revision")
				}
				if revision := revised.Revision(); handled[v] != revision {
					l.advisor.Recommend(v, &l.scratch)
					handled[v] = revision
				}
			}
		}
		pass()
		b.ReportAllocs()
		for b.Loop() {
			pass()
		}
		perVPA(b, f)
	})
}

// The checkpoints of 400 VPAs of which nothing is new. The servers are in memory:
// what is measured is what the programs do. Upstream looks at all pods for each
// VPA, so there are no more of them.
func BenchmarkCheckpointsIdle(b *testing.B) {
	f := newFleet(2000)
	b.Run("upstream", func(b *testing.B) {
		u := upstreamFleet(b, f, true)
		f.addToUpstream(u)
		for tick := range 100 {
			f.tickUpstream(u, 10*tick)
		}
		b.ReportAllocs()
		for b.Loop() {
			u.writer.StoreCheckpoints(b.Context(), 1)
		}
		perVPA(b, f)
	})
	b.Run("loadline", func(b *testing.B) {
		l := loadlineFleet(b, f, true)
		addToLoadline(l, f.objects())
		for tick := range 100 {
			f.tickLoadline(l, 10*tick)
		}
		client, indexer := fake.NewSimpleClientset(), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		saver := checkpoint.NewSaver(checkpoint.Config{Client: client, Lister: listers.NewVerticalPodAutoscalerCheckpointLister(indexer), Workers: 1, Expiry: 8 * 24 * time.Hour})
		pass := func(now time.Time) checkpoint.Result {
			var items []checkpoint.Item
			for _, v := range l.model.VPAs() {
				items = append(items, checkpoint.Item{
					Owner:  checkpoint.Owner{Namespace: v.Object.Namespace, VPA: v.Object.Name},
					Images: func() map[string]profile.Image { return l.advisor.Images(v, now) },
				})
			}
			return saver.Save(b.Context(), items, now, time.Hour)
		}
		first := pass(dayOne)
		require.NoError(b, first.Err)
		written, err := client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("").List(b.Context(), metav1.ListOptions{})
		require.NoError(b, err)
		require.Len(b, written.Items, len(f.vpas)*containersPerPod)
		for i := range written.Items {
			require.NoError(b, indexer.Add(&written.Items[i]))
		}
		b.ReportAllocs()
		for b.Loop() {
			require.Zero(b, pass(dayOne).Written)
		}
		perVPA(b, f)
	})
}

func perVPA(b *testing.B, f fleet) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(f.vpas)), "ns/VPA")
}
