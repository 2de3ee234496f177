package client

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/testkit"
)

// BenchmarkCached measures the heap of one object of a kind in an informer cache, including its
// keys.
func BenchmarkCached(b *testing.B) {
	c := testkit.Crowd{Pods: 20_000, Deployments: 4_000, Revisions: 11, Nodes: 1_000}
	for _, kind := range []struct {
		name  string
		count int
	}{{"Pod", c.Pods}, {"ReplicaSet", c.Deployments * c.Revisions}, {"Deployment", c.Deployments}, {"VPA", c.Deployments}, {"Node", c.Nodes}} {
		b.Run(kind.name, func(b *testing.B) {
			url := testkit.ServeCrowd(b, &testkit.CrowdServer{Crowd: c})
			for range b.N {
				ctx, stop := context.WithCancel(b.Context())
				clients, err := New(&rest.Config{Host: url})
				require.NoError(b, err)
				before := testkit.LiveHeap()
				informer := kept(clients, kind.name)
				go informer.RunWithContext(ctx)
				require.NoError(b, Sync(ctx, map[string]cache.InformerSynced{kind.name: informer.HasSynced}))
				require.Len(b, informer.GetStore().ListKeys(), kind.count)
				b.ReportMetric(float64(testkit.LiveHeap()-before)/float64(kind.count), "B/object")
				b.ReportMetric(0, "ns/op")
				stop()
				require.Len(b, informer.GetStore().ListKeys(), kind.count)
			}
		})
	}
}

func kept(clients *Clients, kind string) cache.SharedIndexInformer {
	f := Factory(clients.Kube, "", time.Hour, "")
	switch kind {
	case "Pod":
		return f.Core().V1().Pods().Informer()
	case "ReplicaSet":
		return f.Apps().V1().ReplicaSets().Informer()
	case "Deployment":
		return f.Apps().V1().Deployments().Informer()
	case "Node":
		return f.Core().V1().Nodes().Informer()
	case "VPA":
		return VPAFactory(clients.VPA, "").Autoscaling().V1().VerticalPodAutoscalers().Informer()
	}
	panic(fmt.Sprintf("no informer of kind %q", kind))
}

func BenchmarkTrim(b *testing.B) {
	c := testkit.Crowd{Pods: 5_000, Deployments: 1_000, Revisions: 11, Nodes: 100}
	pods := make([]*corev1.Pod, c.Pods)
	for i := range pods {
		pods[i] = c.Pod(i)
	}
	var trimmer Trimmer
	kept := make([]any, len(pods))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i % len(pods)
		kept[at], _ = trimmer.Trim(pods[at])
	}
}
