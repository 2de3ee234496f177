package target

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/kube/client"
)

func TestCacheOnly_NeverMakesRequests(t *testing.T) {
	asked := atomic.Int32{}
	reply := make(chan struct{})
	known := scaled{"Rollout.argoproj.io/web": scale("app=web")}
	r := newResolver(t, func(ctx context.Context, namespace string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
		asked.Add(1)
		<-reply
		return known.scale(ctx, namespace, kind, name)
	}, &appsv1.ReplicaSet{ObjectMeta: named("web-1", owner("argoproj.io/v1alpha1", "Rollout", "web"))})
	var wanted []Key
	remembering := r.CacheOnly(func(k Key) { wanted = append(wanted, k) })
	set := Key{Namespace: "ns", Kind: "ReplicaSet", Name: "web-1"}
	rollout := Key{Namespace: "ns", Group: "argoproj.io", Kind: "Rollout", Name: "web"}

	_, _, err := remembering.Topmost(t.Context(), set)
	require.ErrorIs(t, err, ErrNotRead)
	require.Equal(t, []Key{rollout}, wanted)
	require.Zero(t, asked.Load())

	read := make(chan error)
	go func() {
		_, _, err := r.Topmost(t.Context(), set)
		read <- err
	}()
	require.Eventually(t, func() bool { return asked.Load() == 1 }, time.Minute, time.Millisecond)
	_, _, err = remembering.Topmost(t.Context(), set)
	require.ErrorIs(t, err, ErrNotRead, "it does not wait for the question of another")
	close(reply)
	require.NoError(t, <-read)

	top, found, err := remembering.Topmost(t.Context(), set)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, rollout, top)
	selector, err := remembering.Selector(t.Context(), "ns", ref("argoproj.io/v1alpha1", "Rollout", "web"))
	require.NoError(t, err)
	require.Equal(t, "app=web", selector.String())
	require.EqualValues(t, 1, asked.Load())
}

// Pods of one owner arrive together. A concurrent reader of the cached result must not be mistaken
// for a pending request.
func TestCacheOnly_ConcurrentReadersDoNotBlock(t *testing.T) {
	r := newResolver(t, scaled{"Rollout.argoproj.io/web": scale("app=web")}.scale)
	rollout := Key{Namespace: "ns", Group: "argoproj.io", Kind: "Rollout", Name: "web"}
	_, _, err := r.Topmost(t.Context(), rollout)
	require.NoError(t, err)
	missed := atomic.Int32{}
	remembering := r.CacheOnly(func(Key) { missed.Add(1) })
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 100_000 {
				_, _, _ = remembering.Topmost(t.Context(), rollout)
			}
		})
	}
	readers.Wait()
	require.Zero(t, missed.Load())
}

func TestOwners_ReportsCustomOwnersBeforePods(t *testing.T) {
	kube := fake.NewClientset(
		&appsv1.ReplicaSet{ObjectMeta: named("web-1", owner("argoproj.io/v1alpha1", "Rollout", "web"))},
		&appsv1.ReplicaSet{ObjectMeta: named("shop-1", owner("apps/v1", "Deployment", "shop"))},
		&appsv1.Deployment{ObjectMeta: named("shop")})
	f := client.Factory(kube, "", time.Hour, "")
	r := New(f, scaled{}.scale)
	seen := make(chan Key, 10)
	require.NoError(t, r.Owners(func(k Key) { seen <- k }))
	ctx, stop := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	t.Cleanup(func() { stop(); f.Shutdown() })
	rollout := Key{Namespace: "ns", Group: "argoproj.io", Kind: "Rollout", Name: "web"}
	require.Equal(t, rollout, <-seen)
	require.True(t, rollout.Custom())
	_, err := kube.AppsV1().StatefulSets("ns").Create(ctx, &appsv1.StatefulSet{ObjectMeta: named("db", owner("example.com/v1", "Database", "db"))}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "Database", (<-seen).Kind)
	require.Empty(t, seen)
}
