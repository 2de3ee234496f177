package rollouts

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/snapshot"
)

// slowReverter takes 20 ms per write, like a client with 50 requests per second, and records when it
// served each pod.
type slowReverter struct {
	Reverter

	client chan struct{}        // holds a value during a write
	served map[string]time.Time // by namespace and name
}

func (w *slowReverter) RemoveNote(_ context.Context, pod *corev1.Pod) error {
	w.client <- struct{}{}
	defer func() { <-w.client }()
	time.Sleep(20 * time.Millisecond)
	w.served[pod.Namespace+"/"+pod.Name] = time.Now()
	return nil
}

// A user who may annotate pods writes 5,000 notes in one namespace.
func TestQueue_ForgedNotesDoNotDelayOtherNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		w := &slowReverter{client: make(chan struct{}, 1), served: map[string]time.Time{}}
		q := NewQueue(QueueConfig{Pods: corelisters.NewPodLister(pods), Reader: &snapshot.Reader{}, Executor: w})
		note := func(namespace, name string) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), Annotations: map[string]string{convert.ResizedAtAnnotation: "forged"}}}
			require.NoError(t, pods.Add(pod))
			q.queue.Add(cache.MetaObjectToName(pod))
		}
		for i := range 5000 {
			note("attacker", fmt.Sprint(i))
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { q.Run(ctx) })
		time.Sleep(time.Second)
		began := time.Now()
		note("shop", "web-1")
		note("pay", "api-1")
		time.Sleep(30 * time.Minute)
		stop()
		running.Wait()
		require.Len(t, w.served, 5002, "in the end all are served")
		for _, pod := range []string{"shop/web-1", "pay/api-1"} {
			require.Less(t, w.served[pod].Sub(began), time.Second, pod)
		}
	})
}

// Removing forged notes must not use up the requests for reverts.
func TestNoteRemoval_HasSeparateRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		reverting := &slowReverter{client: make(chan struct{}, 1), served: map[string]time.Time{}}
		remover := &slowReverter{client: make(chan struct{}, 1), served: map[string]time.Time{}}
		q := NewQueue(QueueConfig{Pods: corelisters.NewPodLister(pods), Reader: &snapshot.Reader{}, Executor: reverting, Remover: remover})
		for i := range 1483 {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "attacker", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)), Annotations: map[string]string{convert.ResizedAtAnnotation: "forged"}}}
			require.NoError(t, pods.Add(pod))
			q.queue.Add(cache.MetaObjectToName(pod))
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { q.Run(ctx) })
		time.Sleep(time.Minute)
		require.Zero(t, q.queue.Len(), "no pod waits to be judged")
		time.Sleep(9 * time.Minute)
		stop()
		running.Wait()
		require.Len(t, remover.served, 1483, "in the end all are served")
		require.Empty(t, reverting.served)
		var first, last time.Time
		for _, at := range remover.served {
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
		require.GreaterOrEqual(t, last.Sub(first), 1470/removalRate*time.Second)
	})
}

func TestNoteRemoval_OncePerMinutePerPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		removed := 0
		q := NewQueue(QueueConfig{
			Pods: corelisters.NewPodLister(pods), Reader: &snapshot.Reader{},
			Executor: &slowReverter{}, Remover: countedRemovals{&removed},
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { q.Run(ctx) })
		for i := range 600 { // one forgery per second
			at := time.Now().UTC().Add(-time.Duration(i+1) * time.Second).Format(time.RFC3339)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "attacker", Name: "web", UID: types.UID(fmt.Sprint(i)), Annotations: map[string]string{convert.ResizedAtAnnotation: at}}}
			require.NoError(t, pods.Update(pod))
			q.queue.Add(cache.MetaObjectToName(pod))
			time.Sleep(time.Second)
		}
		stop()
		running.Wait()
		require.Positive(t, removed)
		require.LessOrEqual(t, removed, 11)
	})
}

type countedRemovals struct{ removed *int }

func (c countedRemovals) RemoveNote(context.Context, *corev1.Pod) error {
	*c.removed++
	return nil
}

// Users can write a note with requests that the container does not have.
func TestChanged_AddsMissingResources(t *testing.T) {
	o := &observedPod{
		pod: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}},
		change: rollout.Change{Containers: []rollout.ContainerChange{{
			From: policy.Container{Name: "app"}, To: policy.Container{Requests: resources.NewList(100, 1<<20), Limits: resources.NewList(200, 2<<20)},
		}}},
	}
	got := o.podWithChange().Spec.Containers[0].Resources
	require.Equal(t, "100m", got.Requests.Cpu().String())
	require.Equal(t, "2Mi", got.Limits.Memory().String())
}
