package client

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
)

// silentServer answers lists and opens watches without events.
type silentServer struct {
	*fake.Clientset

	watches   chan *watch.RaceFreeFakeWatcher
	opened    atomic.Int32
	bookmarks atomic.Bool // all watches requested bookmarks
}

func newSilentServer(objects ...runtime.Object) *silentServer {
	s := &silentServer{Clientset: fake.NewClientset(objects...), watches: make(chan *watch.RaceFreeFakeWatcher, 100)}
	s.bookmarks.Store(true)
	s.PrependWatchReactor("*", func(a ktesting.Action) (bool, watch.Interface, error) {
		s.opened.Add(1)
		if !a.(ktesting.WatchActionImpl).ListOptions.AllowWatchBookmarks {
			s.bookmarks.Store(false)
		}
		w := watch.NewRaceFreeFake()
		s.watches <- w
		return true, w, nil
	})
	return s
}

func run(t *testing.T, factory informers.SharedInformerFactory, informer cache.SharedIndexInformer) {
	t.Helper()
	t.Cleanup(factory.Shutdown)
	factory.Start(t.Context().Done())
	cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced)
}

func TestFreshness_DetectsSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, freshness := newSilentServer(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}), &Freshness{}
		var slow atomic.Bool
		server.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
			if slow.Load() {
				time.Sleep(time.Minute)
			}
			return false, nil, nil
		})
		factory := Factory(server, "", 0, "", WithFreshness(freshness))
		run(t, factory, factory.Core().V1().Pods().Informer())
		synctest.Wait()
		require.NoError(t, freshness.Stale(), "it was just listed")

		first := <-server.watches
		for range 10 {
			time.Sleep(time.Minute)
			first.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}})
			synctest.Wait()
			require.NoError(t, freshness.Stale(), "bookmarks come although no pod changes")
		}
		require.EqualValues(t, 1, server.opened.Load())

		slow.Store(true)
		time.Sleep(MaxCacheAge - time.Second)
		require.NoError(t, freshness.Stale())
		time.Sleep(30 * time.Second)
		require.ErrorContains(t, freshness.Stale(), "the watch of pods has received nothing for 3m29s", "an attempt to list proves nothing")
		time.Sleep(time.Minute)
		require.NoError(t, freshness.Stale(), "the pods were listed again")
		require.EqualValues(t, 2, server.opened.Load(), "the silent watch was replaced")
	})
}

func TestFreshness_AllWatchesRequestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, freshness := newSilentServer(), &Freshness{}
		factory := Factory(server, "", 0, "", WithFreshness(freshness))
		core, apps, batch := factory.Core().V1(), factory.Apps().V1(), factory.Batch().V1()
		for _, informer := range []cache.SharedIndexInformer{
			core.Pods().Informer(), core.Nodes().Informer(), core.Namespaces().Informer(), core.LimitRanges().Informer(), core.ResourceQuotas().Informer(),
			core.ReplicationControllers().Informer(), apps.ReplicaSets().Informer(), apps.Deployments().Informer(), apps.StatefulSets().Informer(), apps.DaemonSets().Informer(),
			batch.Jobs().Informer(), batch.CronJobs().Informer(), factory.Policy().V1().PodDisruptionBudgets().Informer(), factory.Autoscaling().V2().HorizontalPodAutoscalers().Informer(),
		} {
			run(t, factory, informer)
		}
		vpas := vpafake.NewSimpleClientset()
		own := VPAFactory(vpas, "", WithFreshness(freshness))
		t.Cleanup(own.Shutdown)
		synced := []cache.InformerSynced{
			own.Autoscaling().V1().VerticalPodAutoscalers().Informer().HasSynced, own.Loadline().V1alpha1().SizingPolicies().Informer().HasSynced,
			own.Loadline().V1alpha1().SizingRecords().Informer().HasSynced,
		}
		own.Start(t.Context().Done())
		cache.WaitForCacheSync(t.Context().Done(), synced...)
		synctest.Wait()
		require.True(t, server.bookmarks.Load())
		require.Len(t, freshness.Ages(), 17)
		require.Contains(t, freshness.Ages(), "sizingpolicies")
		require.Contains(t, freshness.Ages(), "verticalpodautoscalers")
	})
}

// The programs work without optional resources, so a resource that becomes forbidden is not stale.
func TestFreshness_IgnoresForbiddenResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, freshness := newSilentServer(), &Freshness{}
		var forbidden atomic.Bool
		refuse := func(ktesting.Action) (bool, runtime.Object, error) {
			return forbidden.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
		}
		server.PrependReactor("list", "nodes", refuse)
		server.PrependWatchReactor("nodes", func(a ktesting.Action) (bool, watch.Interface, error) {
			_, _, err := refuse(a)
			return forbidden.Load(), nil, err
		})
		factory := Factory(server, "", 0, "", WithFreshness(freshness))
		nodes := factory.Core().V1().Nodes().Informer()
		require.NoError(t, Optional(nodes, 0, "no nodes"))
		run(t, factory, nodes)
		synctest.Wait()
		forbidden.Store(true)
		(<-server.watches).Stop()
		time.Sleep(2 * MaxCacheAge)
		require.NoError(t, freshness.Stale())
		require.Empty(t, freshness.Ages())
	})
}
