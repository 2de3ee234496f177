package model

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/usage"
)

const (
	watchPause       = 10 * time.Second // before the watch is opened again, times 1 to 1.5
	rememberedEvents = 10000            // the latest are remembered, and up to twice as many
)

// Evictions watches eviction events and puts those for want of memory into a
// queue, where they wait until their pod is known to have been evicted.
type Evictions struct {
	kube      kubernetes.Interface
	namespace string
	ooms      *OOMs
	seen      recent[types.UID, struct{}] // events with kills
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
	ooms := EvictionOOMs(event)
	if len(ooms) == 0 || event.Namespace != event.InvolvedObject.Namespace {
		return
	}
	if _, known := e.seen.get(event.UID); known {
		return
	}
	e.seen.put(event.UID, struct{}{})
	e.ooms.claim(event.InvolvedObject, ooms)
}

// recent remembers the latest entries. Servers keep events for about an hour only, but there may be many.
type recent[K comparable, V any] struct{ young, old map[K]V }

func (r *recent[K, V]) get(key K) (value V, known bool) {
	if value, known = r.young[key]; !known {
		value, known = r.old[key]
	}
	return value, known
}

func (r *recent[K, V]) put(key K, value V) {
	if len(r.young) >= rememberedEvents || r.young == nil {
		r.young, r.old = map[K]V{}, r.young
	}
	r.young[key] = value
}

func (r *recent[K, V]) drop(key K) {
	delete(r.young, key)
	delete(r.old, key)
}

// evictionClaims matches eviction events with the pods that they are about. Who may write events
// may write any, so an event counts only if the pod has failed with the reason Evicted. The kubelet
// writes the event first, and the status when the containers have ended.
type evictionClaims struct {
	evicted recent[cache.ObjectName, types.UID]
	waiting recent[cache.ObjectName, []evictionClaim]
}

// evictionClaim is what an event claims about the pod with a UID; empty = of any.
type evictionClaim struct {
	pod  types.UID
	ooms []usage.OOM
}

// mostClaims is how many events of a pod wait, the latest.
const mostClaims = 4

func (c evictionClaim) about(pod types.UID) bool { return c.pod == "" || c.pod == pod }

// claim takes the kills that an event reports of a pod.
func (q *OOMs) claim(pod corev1.ObjectReference, ooms []usage.OOM) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name, c := cache.ObjectName{Namespace: pod.Namespace, Name: pod.Name}, evictionClaim{pod.UID, ooms}
	if uid, evicted := q.evictions.evicted.get(name); evicted && c.about(uid) {
		q.add(ooms)
		return
	}
	others, _ := q.evictions.waiting.get(name)
	q.evictions.waiting.put(name, append(slices.Clone(others[max(0, len(others)-mostClaims+1):]), c))
}

// confirm lets the kills count that events report of a pod, which the kubelet has evicted.
func (q *OOMs) confirm(pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := cache.MetaObjectToName(pod)
	q.evictions.evicted.put(name, pod.UID)
	claims, _ := q.evictions.waiting.get(name)
	q.evictions.waiting.drop(name)
	for _, c := range claims {
		if c.about(pod.UID) {
			q.add(c.ooms)
		}
	}
}
