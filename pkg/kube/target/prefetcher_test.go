package target

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

func TestPrefetcher_ReadsEachWorkloadOnceInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		read := map[string]int{}
		s := NewPrefetcher(func(_ context.Context, key Key) {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			read[key.Name]++
		})
		for _, name := range []string{"a", "b", "a", "c", "d", "a"} {
			s.Enqueue(Key{Name: name})
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.Run(ctx) }()
		time.Sleep(1100 * time.Millisecond)
		times := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(read)
		}
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, times())
		s.Enqueue(Key{Name: "a"})
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, 2, times()["a"])
		s.Enqueue(Key{Name: "last"})
		time.Sleep(100 * time.Millisecond)
		stop()
		<-ended
		require.Equal(t, 1, times()["last"], "what is being read is read to its end")
	})
}

// Any user can create pods with arbitrary owners. They must neither fill the memory nor delay the
// pods of other namespaces.
func TestPrefetcher_IsBoundedAndFairToNamespaces(t *testing.T) {
	s := NewPrefetcher(nil)
	for i := range 3 * maxQueued {
		s.Enqueue(Key{Namespace: "greedy", Name: fmt.Sprint(i)})
	}
	require.Len(t, s.queued, maxQueued)
	for i := range 3 {
		s.Enqueue(Key{Namespace: "shop", Name: fmt.Sprint(i)})
		s.Enqueue(Key{Namespace: "bank", Name: fmt.Sprint(i)})
	}
	s.Enqueue(Key{Namespace: "greedy", Name: "0"})
	require.Len(t, s.queued, maxQueued)
	var order []string
	for range 10 {
		key, ok := s.next()
		require.True(t, ok)
		order = append(order, key.Namespace+" "+key.Name)
	}
	require.Equal(t, []string{"greedy 0", "shop 0", "bank 0", "greedy 1", "shop 1", "bank 1", "greedy 2", "shop 2", "bank 2", "greedy 3"}, order)
	left := 0
	for key, ok := s.next(); ok; key, ok = s.next() {
		left++
		require.NotEqual(t, fmt.Sprint(maxQueued-1), key.Name, "the newest made room")
	}
	require.Equal(t, maxQueued-10, left)
	require.Empty(t, s.queued)
	require.Empty(t, s.queues)
	require.Empty(t, s.order)
}

func TestPrefetcher_FullQueueKeepsSmallerShares(t *testing.T) {
	s := NewPrefetcher(nil)
	for i := range maxQueued {
		s.Enqueue(Key{Namespace: fmt.Sprint(i % 4), Name: fmt.Sprint(i)})
	}
	s.Enqueue(Key{Namespace: "1", Name: "more"})
	for namespace, keys := range s.queues {
		require.Len(t, keys, maxQueued/4, namespace)
	}
	s.Enqueue(Key{Namespace: "new", Name: "first"})
	require.Len(t, s.queues["new"], 1)
	require.Len(t, s.queues["0"], maxQueued/4-1)
}

// The target of a VPA is read when the VPA appears, so the first pod of a custom kind needs no API
// call.
func TestFinder_PodsOfCustomControllersNeedNoAPICall(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var calls atomic.Int32
	f := client.Factory(fake.NewClientset(), "", time.Hour, "")
	resolver := New(f, func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
		defer calls.Add(1)
		time.Sleep(5 * time.Millisecond)
		return &autoscalingv1.Scale{Status: autoscalingv1.ScaleStatus{Selector: "app=web"}}, nil
	})
	f.Start(ctx.Done())
	require.NoError(t, client.Sync(ctx, resolver.Synced()))
	var ended sync.WaitGroup
	defer func() { stop(); ended.Wait(); f.Shutdown() }()
	scout := NewPrefetcher(func(ctx context.Context, key Key) { _, _, _ = resolver.Topmost(ctx, key) })
	ended.Go(func() { scout.Run(ctx) })
	finder := NewFinder(ctx, resolver.CacheOnly(scout.Enqueue))
	rollout := func(name string) func(*vpav1.VerticalPodAutoscaler) {
		return func(v *vpav1.VerticalPodAutoscaler) {
			v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: name}
		}
	}
	vpa := testkit.VPA("v", rollout("web"))
	finder.Handler(scout.Enqueue).OnAdd(vpa, true)
	require.Eventually(t, func() bool { return calls.Load() == 1 }, time.Minute, time.Millisecond)

	pod := testkit.Pod("p")
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "web", Controller: new(true)}}
	for range 10 {
		got, err := finder.Find(ctx, testkit.Namespace, pod)
		require.NoError(t, err)
		require.Same(t, vpa, got)
	}
	require.EqualValues(t, 1, calls.Load())

	pod.OwnerReferences[0].Name = "unknown"
	finder.Put(testkit.VPA("w", rollout("unknown")))
	got, err := finder.Find(ctx, testkit.Namespace, pod)
	require.NoError(t, err)
	require.NotNil(t, got, "the scout reads what was not foreseen while the pod waits for a moment")
	require.Equal(t, "w", got.Name)
}

func TestPrefetcher_PodOwnersDoNotDelayTargets(t *testing.T) {
	resolver := New(client.Factory(fake.NewClientset(), "", time.Hour, ""), func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	})
	scout := NewPrefetcher(nil)
	remembering := resolver.CacheOnly(scout.Enqueue)
	rollout := func(name string) Key {
		return Key{Namespace: "ns", Group: "argoproj.io", Kind: "Rollout", Name: name}
	}
	for i := range 2 * maxQueued {
		_, _, err := remembering.Topmost(t.Context(), rollout(fmt.Sprint("invented-", i)))
		require.ErrorIs(t, err, ErrNotRead)
	}
	scout.Enqueue(rollout("web"))
	for read := 0; ; read++ {
		key, some := scout.next()
		require.True(t, some, "it was dropped")
		if key == rollout("web") {
			break
		}
		require.Less(t, read, 20)
		_, _, err := resolver.Topmost(t.Context(), key)
		require.NoError(t, err)
		_, _, err = remembering.Topmost(t.Context(), rollout(fmt.Sprint("next-", read)))
		require.ErrorIs(t, err, ErrNotRead)
	}
	require.NotEmpty(t, scout.queued, "those that pods name have their turn, too")
}
