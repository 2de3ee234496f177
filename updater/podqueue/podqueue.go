// Package podqueue serves work queues of pods: what is to be done with a pod when it is due, or
// when an event of it comes.
package podqueue

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/updater/view"
)

// Queue is a work queue of the names of pods.
type Queue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

// Sync does for one pod what is due at now and returns when to look again; 0: when an event of
// the pod comes. After an error it is called again, later each time.
type Sync func(ctx context.Context, pod cache.ObjectName, now time.Time) (again time.Duration, err error)

// Run serves a queue with so many workers until ctx ends, and ends the queue. Errors and panics
// of sync are logged with a message that says what is not done yet.
func Run(ctx context.Context, queue Queue, workers int, due Sync, undone string) {
	var serving sync.WaitGroup
	for range workers {
		serving.Go(func() {
			for serve(ctx, queue, due, undone) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	serving.Wait()
}

// serve takes one pod from the queue. It is false when the queue has ended.
func serve(ctx context.Context, queue Queue, due Sync, undone string) bool {
	name, ended := queue.Get()
	if ended {
		return false
	}
	defer queue.Done(name)
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
