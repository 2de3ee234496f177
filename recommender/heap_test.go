package main

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
	"loadline.dev/loadline/pkg/testkit/crowd"
)

// What the recommender keeps of a cluster with a day of usage: its caches, its
// model of the cluster and its histories.
func BenchmarkHeap(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	crowd.Heap(b, func(b *testing.B, url string, c crowd.Cluster) func() {
		clients, err := client.New(&rest.Config{Host: url})
		require.NoError(b, err)
		now := start()
		samples := func(_ context.Context, yield func(usage.Sample)) error {
			for i := range c.Pods {
				pod := c.Pod(i)
				for n := range pod.Spec.Containers {
					key := usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: pod.Spec.Containers[n].Name}
					noise := resources.Amount(i*31+int(now.Unix())/60*17) % 97
					yield(usage.Sample{Container: key, Kind: resources.CPU, At: now, Amount: 50 + 3*noise})
					yield(usage.Sample{Container: key, Kind: resources.Memory, At: now, Amount: (200 + noise) << 20})
				}
			}
			return nil
		}
		a := newAssembly(b.Context(), Default(), parts{
			clients: clients, origin: usageSource{Samples: samples}, scale: client.NewScales(clients.Kube),
			metrics: newMetrics(prometheus.NewRegistry()), health: serving.NewHealth(time.Hour), now: func() time.Time { return now },
		})
		loop, err := a.start()
		require.NoError(b, err)
		loop.started = now
		loop.loadVPAs(b.Context(), now)
		loop.loadPods(now)
		for range 4 {
			now = now.Add(6 * time.Hour)
			loop.addUsage(b.Context(), now)
			loop.deleteRemovedPods()
		}
		require.Len(b, loop.Model.VPAs(), c.Deployments)
		return func() {
			loop.loadPods(now)
			a.stop()
		}
	})
}
