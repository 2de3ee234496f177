package observe

import (
	"context"
	"sync"
	"time"

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

// serveQueue serves a queue with so many workers until ctx ends, and ends the queue. Errors and panics
// of sync are logged with a message that says what is not done yet.
func serveQueue(ctx context.Context, queue podQueue, workers int, due syncFunc, undone string) {
	var serving sync.WaitGroup
	for range workers {
		serving.Go(func() {
			for serveNext(ctx, queue, due, undone) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	serving.Wait()
}

// serveNext takes one pod from the queue. While another replica may lead, the pod waits. It is false when the queue has ended.
func serveNext(ctx context.Context, queue podQueue, due syncFunc, undone string) bool {
	name, ended := queue.Get()
	if ended {
		return false
	}
	defer queue.Done(name)
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
