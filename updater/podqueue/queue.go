// Package podqueue processes pods by name and lets namespaces take turns, so that no namespace
// delays the others.
package podqueue

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/serving"
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

// namespaceQueue stores the pods of a Queue. Each namespace has its own order of arrival, so that
// annotations on many pods of one namespace delay no other namespace.
type namespaceQueue struct {
	waiting map[string][]cache.ObjectName // pods by namespace, never empty
	next    []string                      // keys of waiting in the order of their turns
	pods    int
}

func newNamespaceQueue() *namespaceQueue {
	return &namespaceQueue{waiting: map[string][]cache.ObjectName{}}
}

func (t *namespaceQueue) Touch(cache.ObjectName) {}

func (t *namespaceQueue) Len() int { return t.pods }

func (t *namespaceQueue) Push(pod cache.ObjectName) {
	if len(t.waiting[pod.Namespace]) == 0 {
		t.next = append(t.next, pod.Namespace)
	}
	t.waiting[pod.Namespace] = append(t.waiting[pod.Namespace], pod)
	t.pods++
}

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

// leasePause is the pause of a pod while the leader Lease is not renewed in time.
const leasePause = time.Second

// Sync reconciles one pod at now. It returns the time until the next call, or 0 to wait for an
// event of the pod. After an error it is called again with a growing pause.
type Sync func(ctx context.Context, pod cache.ObjectName, now time.Time) (retryAfter time.Duration, err error)

// Serve processes a queue until ctx ends, then shuts it down. Each namespace gets up to
// perNamespace concurrent workers. One more worker serves the other namespaces, because requests
// for a namespace may be slow. Errors and panics of reconcile are logged with failureMessage.
func Serve(ctx context.Context, queue Queue, perNamespace int, reconcile Sync, failureMessage string) {
	limit := &namespaceLimit{
		workers: perNamespace, busy: map[string]int{}, waiting: map[string][]cache.ObjectName{}, parked: sets.Set[cache.ObjectName]{},
	}
	var workers sync.WaitGroup
	for range perNamespace + 1 {
		workers.Go(func() {
			for serveNext(ctx, queue, limit, reconcile, failureMessage) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
}

func serveNext(ctx context.Context, queue Queue, limit *namespaceLimit, reconcile Sync, failed string) bool {
	name, ended := queue.Get()
	if ended {
		return false
	}
	defer queue.Done(name)
	if !limit.enter(name) {
		return true
	}
	defer limit.leave(name.Namespace, queue.Add)
	if lease.Check(ctx) != nil { // another replica may lead and serve the pod
		queue.AddAfter(name, leasePause)
		return true
	}
	var retryAfter time.Duration
	err := serving.Guard(func() (err error) {
		retryAfter, err = reconcile(ctx, name, time.Now())
		return err
	})
	switch {
	case ctx.Err() != nil:
	case client.IsWriteLimited(err): // the limit is logged for the namespace
		queue.AddRateLimited(name)
	case err != nil:
		klog.FromContext(ctx).Error(err, failed, "pod", klog.KRef(name.Namespace, name.Name))
		queue.AddRateLimited(name)
	case retryAfter > 0:
		queue.Forget(name)
		queue.AddAfter(name, retryAfter)
	default:
		queue.Forget(name)
	}
	return true
}

// namespaceLimit bounds the workers of a namespace. Further pods wait outside of the queue.
type namespaceLimit struct {
	workers int

	mu      sync.Mutex
	busy    map[string]int                // workers by namespace
	waiting map[string][]cache.ObjectName // only of namespaces with all workers busy
	parked  sets.Set[cache.ObjectName]    // all waiting pods, each once
}

// enter reports whether a pod may be served now. Otherwise it waits for a worker.
func (l *namespaceLimit) enter(pod cache.ObjectName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[pod.Namespace] >= l.workers {
		if !l.parked.Has(pod) {
			l.parked.Insert(pod)
			l.waiting[pod.Namespace] = append(l.waiting[pod.Namespace], pod)
		}
		return false
	}
	l.busy[pod.Namespace]++
	return true
}

func (l *namespaceLimit) leave(namespace string, add func(cache.ObjectName)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[namespace]--; l.busy[namespace] == 0 {
		delete(l.busy, namespace)
	}
	waiting := l.waiting[namespace]
	if len(waiting) == 0 {
		return
	}
	l.parked.Delete(waiting[0])
	add(waiting[0])
	if l.waiting[namespace] = waiting[1:]; len(waiting) == 1 {
		delete(l.waiting, namespace)
	}
}
