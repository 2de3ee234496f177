package observe

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// newFairQueue returns a work queue in which namespaces take turns.
func newFairQueue(limiter workqueue.TypedRateLimiter[cache.ObjectName]) podQueue {
	waiting := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Queue: newNamespaceQueue()})
	delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{Queue: waiting})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{DelayingQueue: delayed})
}

// namespaceQueue is the store of a work queue: namespaces take turns, and the pods of each are served
// in the order in which they came, so that the notes that a user writes on many pods delay no other namespace.
type namespaceQueue struct {
	waiting map[string][]cache.ObjectName // pods by namespace; none is empty
	next    []string                      // the namespaces of waiting, in their order
	pods    int
}

// newNamespaceQueue returns a store in which nothing waits.
func newNamespaceQueue() *namespaceQueue {
	return &namespaceQueue{waiting: map[string][]cache.ObjectName{}}
}

// Touch does nothing for a pod that waits already.
func (t *namespaceQueue) Touch(cache.ObjectName) {}

// Len returns how many pods wait.
func (t *namespaceQueue) Len() int { return t.pods }

// Push adds a pod.
func (t *namespaceQueue) Push(pod cache.ObjectName) {
	if len(t.waiting[pod.Namespace]) == 0 {
		t.next = append(t.next, pod.Namespace)
	}
	t.waiting[pod.Namespace] = append(t.waiting[pod.Namespace], pod)
	t.pods++
}

// Pop takes the first pod of the next namespace, which is the last one then.
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
