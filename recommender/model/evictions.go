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
	watchRetryInterval = 10 * time.Second // before a watch is reopened, times 1 to 1.5
	rememberedEvents   = 10000            // at least this many, at most twice as many
)

// Evictions queues memory evictions from events once their pod is confirmed as evicted.
type Evictions struct {
	kube      kubernetes.Interface
	namespace string
	ooms      *KillQueue
	seen      recent[types.UID, struct{}] // events with kills
	failing   bool
}

// NewEvictions returns a watcher of one namespace, or of all if namespace is empty.
func NewEvictions(kube kubernetes.Interface, namespace string, ooms *KillQueue) *Evictions {
	return &Evictions{kube: kube, namespace: namespace, ooms: ooms}
}

// Run watches until ctx ends and reopens closed watches.
func (e *Evictions) Run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, e.watchOnce, watchRetryInterval, 0.5, true)
}

// watchOnce follows one watch. Each watch replays all stored events, so known events are skipped.
func (e *Evictions) watchOnce(ctx context.Context) {
	watcher, err := e.kube.CoreV1().Events(e.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "reason=Evicted"})
	if err != nil {
		if ctx.Err() == nil && !e.failing {
			klog.FromContext(ctx).Error(err, "Failed to watch eviction events, missing out-of-memory evictions until a retry succeeds")
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
				e.handle(object)
			}
		}
	}
}

func (e *Evictions) handle(event *corev1.Event) {
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

// recent holds the latest entries. API servers store many events, for about an hour.
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

// evictionClaims matches eviction events with their pods. Events can be forged, so an event counts
// only if its pod failed with the reason Evicted. The kubelet writes the event first, and the
// status after the containers have ended.
type evictionClaims struct {
	evicted recent[cache.ObjectName, types.UID]
	waiting recent[cache.ObjectName, []evictionClaim]
}

// evictionClaim holds the kills of an event. An empty UID matches any pod of the name.
type evictionClaim struct {
	pod  types.UID
	ooms []usage.OOM
}

// maxClaims is the maximum number of waiting events of a pod, the latest.
const maxClaims = 4

func (c evictionClaim) matches(pod types.UID) bool { return c.pod == "" || c.pod == pod }

func (q *KillQueue) claim(pod corev1.ObjectReference, ooms []usage.OOM) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name, c := cache.ObjectName{Namespace: pod.Namespace, Name: pod.Name}, evictionClaim{pod.UID, ooms}
	if uid, evicted := q.evictions.evicted.get(name); evicted && c.matches(uid) {
		q.add(ooms)
		return
	}
	others, _ := q.evictions.waiting.get(name)
	q.evictions.waiting.put(name, append(slices.Clone(others[max(0, len(others)-maxClaims+1):]), c))
}

func (q *KillQueue) confirm(pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := cache.MetaObjectToName(pod)
	q.evictions.evicted.put(name, pod.UID)
	claims, _ := q.evictions.waiting.get(name)
	q.evictions.waiting.drop(name)
	for _, c := range claims {
		if c.matches(pod.UID) {
			q.add(c.ooms)
		}
	}
}
