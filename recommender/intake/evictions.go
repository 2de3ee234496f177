package intake

import (
	"context"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/recommender/feed"
)

const (
	watchPause = 10 * time.Second // before the watch is opened again, times 1 to 1.5
	uidMemory  = 24 * time.Hour   // since an event was last seen; servers keep events for about an hour
)

// Evictions watches eviction events and puts those for want of memory into a
// queue.
type Evictions struct {
	kube      kubernetes.Interface
	namespace string
	ooms      *OOMs
	seen      map[types.UID]time.Time // when an event was last seen
	failing   bool
}

// NewEvictions returns a watcher of one namespace, or of all.
func NewEvictions(kube kubernetes.Interface, namespace string, ooms *OOMs) *Evictions {
	return &Evictions{kube: kube, namespace: namespace, ooms: ooms, seen: map[types.UID]time.Time{}}
}

// Run watches until ctx ends, and opens the watch again whenever it ends.
func (e *Evictions) Run(ctx context.Context) {
	for ctx.Err() == nil {
		e.once(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(watchPause + rand.N(watchPause/2)):
		}
	}
}

// once follows one watch to its end. Each watch begins with all events that the
// server still has; those known already are passed over.
func (e *Evictions) once(ctx context.Context) {
	watcher, err := e.kube.CoreV1().Events(e.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "reason=Evicted"})
	if err != nil {
		if ctx.Err() == nil && !e.failing {
			klog.FromContext(ctx).Error(err, "Cannot watch eviction events; out-of-memory evictions are not seen until that works. Retrying")
		}
		e.failing = true
		return
	}
	defer watcher.Stop()
	e.failing = false
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-watcher.ResultChan():
			if !open || event.Type == watch.Error {
				e.forget(time.Now())
				return
			}
			if object, ok := event.Object.(*corev1.Event); ok && event.Type == watch.Added {
				e.take(object, time.Now())
			}
		}
	}
}

func (e *Evictions) take(event *corev1.Event, now time.Time) {
	_, known := e.seen[event.UID]
	e.seen[event.UID] = now
	if !known {
		e.ooms.Add(feed.EvictionOOMs(event)...)
	}
}

func (e *Evictions) forget(now time.Time) {
	for uid, last := range e.seen {
		if now.Sub(last) > uidMemory {
			delete(e.seen, uid)
		}
	}
}
