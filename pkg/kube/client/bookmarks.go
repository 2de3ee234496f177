package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

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
