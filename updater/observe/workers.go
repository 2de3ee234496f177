package observe

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/updater/view"
)

// leasePause is until a pod is served that was not because the leader Lease was not renewed in time.
const leasePause = time.Second

// podQueue is a work queue of the names of pods.
type podQueue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

// syncFunc does for one pod what is due at now and returns when to look again; 0: when an event of
// the pod comes. After an error it is called again, later each time.
type syncFunc func(ctx context.Context, pod cache.ObjectName, now time.Time) (again time.Duration, err error)

// serveQueue serves a queue until ctx ends, and ends the queue. Each namespace gets up to perNamespace
// workers at the same time. One more is left for the others, because the requests of a namespace may take
// long. Errors and panics of due are logged with a message about the pending work.
func serveQueue(ctx context.Context, queue podQueue, perNamespace int, due syncFunc, undone string) {
	limit := &namespaceLimit{
		workers: perNamespace, busy: map[string]int{}, waiting: map[string][]cache.ObjectName{}, parked: sets.Set[cache.ObjectName]{},
	}
	var serving sync.WaitGroup
	for range perNamespace + 1 {
		serving.Go(func() {
			for serveNext(ctx, queue, limit, due, undone) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	serving.Wait()
}

// serveNext takes one pod from the queue. While another replica may lead, the pod waits. It is false when the queue has ended.
func serveNext(ctx context.Context, queue podQueue, limit *namespaceLimit, due syncFunc, undone string) bool {
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
	var again time.Duration
	err := view.Guard(func() (err error) {
		again, err = due(ctx, name, time.Now())
		return err
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		klog.FromContext(ctx).Error(err, undone, "pod", klog.KRef(name.Namespace, name.Name))
		queue.AddRateLimited(name)
	case again > 0:
		queue.Forget(name)
		queue.AddAfter(name, again)
	default:
		queue.Forget(name)
	}
	return true
}

// namespaceLimit bounds how many pods of a namespace are served at the same time. Further ones wait apart
// from the queue.
type namespaceLimit struct {
	workers int

	mu      sync.Mutex
	busy    map[string]int                // workers by namespace
	waiting map[string][]cache.ObjectName // only of namespaces with all their workers busy
	parked  sets.Set[cache.ObjectName]    // all that wait, each once
}

// enter reports whether a pod may be served now. Otherwise it waits until a worker leaves its namespace.
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

// leave ends the work on a pod of a namespace and adds the next waiting pod of it.
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
