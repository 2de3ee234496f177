package model

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	watchPause       = 10 * time.Second // before the watch is opened again, times 1 to 1.5
	rememberedEvents = 10000            // the latest are remembered, and up to twice as many
)

// Evictions watches eviction events and puts those for want of memory into a
// queue.
type Evictions struct {
	kube      kubernetes.Interface
	namespace string
	ooms      *OOMs
	seen      uids // of events with kills
	failing   bool
}

// NewEvictions returns a watcher of one namespace, or of all.
func NewEvictions(kube kubernetes.Interface, namespace string, ooms *OOMs) *Evictions {
	return &Evictions{kube: kube, namespace: namespace, ooms: ooms}
}

// Run watches until ctx ends, and opens the watch again whenever it ends.
func (e *Evictions) Run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, e.once, watchPause, 0.5, true)
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
				return
			}
			if object, ok := event.Object.(*corev1.Event); ok && event.Type == watch.Added {
				e.take(object)
			}
		}
	}
}

func (e *Evictions) take(event *corev1.Event) {
	if ooms := EvictionOOMs(event); len(ooms) > 0 && !e.seen.note(event.UID) {
		e.ooms.Add(ooms...)
	}
}

// uids remembers the UIDs of the latest events. Servers keep events for about an hour
// only, but there may be many.
type uids struct{ young, old map[types.UID]struct{} }

// note remembers a UID and reports whether it was known.
func (u *uids) note(uid types.UID) (known bool) {
	if _, known = u.young[uid]; known {
		return true
	}
	_, known = u.old[uid]
	if len(u.young) >= rememberedEvents || u.young == nil {
		u.young, u.old = map[types.UID]struct{}{}, u.young
	}
	u.young[uid] = struct{}{}
	return known
}
