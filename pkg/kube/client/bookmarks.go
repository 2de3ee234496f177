package client

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

// listWatcher returns what an informer asks for the objects of a kind, in one namespace or, if that is
// empty, in all. Of most kinds the first list is streamed. A tracked informer cannot do without bookmarks:
// they show that its watch works.
func listWatcher(asks *cache.ListWatch, client any, object runtime.Object, namespace string, tracked bool) cache.ListerWatcher {
	switch object.(type) {
	case *corev1.Namespace, *corev1.ResourceQuota, *corev1.LimitRange, *corev1.ReplicationController, *appsv1.DaemonSet,
		*loadlinev1alpha1.SizingPolicy:
		if namespace != "" {
			break // only bookmarks let a watch of one namespace keep up with what happens in all
		}
		client = wholeLists{}
		if tracked {
			break
		}
		asks = &cache.ListWatch{ListWithContextFunc: asks.ListWithContextFunc, WatchFuncWithContext: withoutBookmarks(asks.WatchFuncWithContext)}
	}
	return cache.ToListWatcherWithWatchListSemantics(asks, client)
}

// wholeLists is a client for kinds of which a cluster has few objects, whose watches ask for no
// bookmarks: each bookmark wakes a program that has nothing to do, once a minute and watch, and saves
// no more than a list of these few small objects after a restart of the API server. A list that is streamed
// cannot do without, so theirs come whole.
type wholeLists struct{}

// IsWatchListSemanticsUnSupported reports that lists are not streamed.
func (wholeLists) IsWatchListSemanticsUnSupported() bool { return true }

// withoutBookmarks makes a watch ask for no bookmarks.
func withoutBookmarks(watching cache.WatchFuncWithContext) cache.WatchFuncWithContext {
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.AllowWatchBookmarks = false
		return watching(ctx, o)
	}
}
