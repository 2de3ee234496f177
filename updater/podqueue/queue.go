// Package podqueue serves pods by name. Namespaces take turns, so that no namespace delays the others.
package podqueue

import (
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// MinPause is the pause after the first failure of a pod. It doubles with each further one.
const MinPause = 100 * time.Millisecond

// Queue is a work queue of pod names.
type Queue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

// New returns a queue in which namespaces take turns. A pod that fails waits up to maxPause.
func New(maxPause time.Duration) Queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](MinPause, maxPause)
	waiting := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Queue: newNamespaceQueue()})
	delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{Queue: waiting})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{DelayingQueue: delayed})
}

// namespaceQueue stores the pods of a Queue. Each namespace has its own order of arrival, so that annotations on many
// pods of one namespace delay no other namespace.
type namespaceQueue struct {
	waiting map[string][]cache.ObjectName // pods by namespace, never empty
	next    []string                      // keys of waiting in the order of their turns
	pods    int
}

// newNamespaceQueue returns an empty store.
func newNamespaceQueue() *namespaceQueue {
	return &namespaceQueue{waiting: map[string][]cache.ObjectName{}}
}

// Touch does nothing. The pod waits already.
func (t *namespaceQueue) Touch(cache.ObjectName) {}

// Len returns the number of waiting pods.
func (t *namespaceQueue) Len() int { return t.pods }

// Push adds a pod.
func (t *namespaceQueue) Push(pod cache.ObjectName) {
	if len(t.waiting[pod.Namespace]) == 0 {
		t.next = append(t.next, pod.Namespace)
	}
	t.waiting[pod.Namespace] = append(t.waiting[pod.Namespace], pod)
	t.pods++
}

// Pop removes the first pod of the next namespace and moves the namespace to the end.
func (t *namespaceQueue) Pop() cache.ObjectName {
	namespace := t.next[0]
	pod, others := t.waiting[namespace][0], t.waiting[namespace][1:]
	t.next = t.next[1:]
	if len(others) > 0 {
		t.waiting[namespace], t.next = others, append(t.next, namespace)
	} else {
		delete(t.waiting, namespace)
	}
	t.pods--
	return pod
}
