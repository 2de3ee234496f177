package updater

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/updater/actuate"
)

// BenchmarkHeap measures the memory that the updater keeps after an iteration, including caches and
// pod states.
func BenchmarkHeap(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	testkit.MeasureHeap(b, func(b *testing.B, url string, c testkit.Crowd) func() {
		clients, err := client.New(&rest.Config{Host: url})
		require.NoError(b, err)
		config := Default()
		config.Heartbeat.Required, config.DryRun = false, true
		ctx, stop := context.WithCancel(b.Context())
		d := dependencies{env: printing{out: discard{}}, metrics: newMetrics(prometheus.NewRegistry()), clients: sameClients(clients.Kube, clients.VPA)}
		p, err := newProgram(ctx, config, d, overrides{})
		require.NoError(b, err)
		require.NoError(b, p.start(ctx))
		p.loop.setExecutor(silentDryRun{&actuate.DryRun{Out: discard{}}})
		p.loop.RunOnce(ctx, noon)
		it, err := p.loop.read(ctx, noon, func(string) {})
		require.NoError(b, err)
		require.Len(b, it.view.VPAs, c.Deployments)
		return func() {
			stop()
			p.shutdown()
			p.loop.RunOnce(context.Background(), noon)
		}
	})
}

// silentDryRun keeps no skipped pods, like the executor that changes pods.
type silentDryRun struct{ *actuate.DryRun }

func (silentDryRun) LeftAlone([]disruption.Skip) {}

// Cached pods share labels, containers and quantities, so changing one in place would change
// others.
func TestRunOnce_DoesNotMutateCachedObjects(t *testing.T) {
	config, boosted := Default(), 0
	w := newWorld(t, config, append(deployment(4, func(p *corev1.Pod) {
		if boosted++; boosted == 1 {
			boostedPod(p)
		}
	}), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	type pair struct{ cached, copied runtime.Object }
	var objects []pair
	for _, store := range []cache.Store{w.caches.pods.Core().V1().Pods().Informer().GetStore(), w.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer().GetStore()} {
		for _, o := range store.List() {
			objects = append(objects, pair{o.(runtime.Object), o.(runtime.Object).DeepCopyObject()})
		}
	}
	require.Len(t, objects, 5)
	w.runBoosts()
	w.awaitBoostRemoved("web-1-0")
	w.runOnce(noon)
	require.NotEmpty(t, w.writes())
	for _, o := range objects {
		require.Equal(t, o.copied, o.cached)
	}
}
