package rollouts

import (
	"context"
	"maps"
	"sync"
	"time"

	limit "golang.org/x/time/rate"

	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/updater/podqueue"
)

const (
	removalRate  = 5 // notes per second
	removalBurst = 5
	// removalPause is how long removals wait for pending judgments.
	removalPause = time.Second
	// podPause is the minimum time between two removals from a pod. Each rewrites the whole pod.
	podPause = time.Minute
)

// removals removes invalid notes. Users can create any number of them, so removals have a separate
// rate, namespaces take turns, and pending judgments have priority.
type removals struct {
	queue podqueue.Queue
	rate  *limit.Limiter

	mu        sync.Mutex
	rechecked map[cache.ObjectName]bool      // pods with a change that is in no cached record
	last      map[cache.ObjectName]time.Time // last removal from each pod
}

func newRemovals() *removals {
	return &removals{queue: podqueue.New(maxRetryDelay), rate: limit.NewLimiter(removalRate, removalBurst), rechecked: map[cache.ObjectName]bool{}, last: map[cache.ObjectName]time.Time{}}
}

// recheckAfter returns when to check a pod with an unrecorded change again. The record cache may be
// behind the pod cache, and a revert must not wait for removals.
func (r *removals) recheckAfter(pod cache.ObjectName) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rechecked[pod] {
		return recheckInterval
	}
	if len(r.rechecked) >= maxEnded {
		clear(r.rechecked)
	}
	r.rechecked[pod] = true
	return staleRetryDelay
}

// due returns how long a pod must wait for its next removal. Without a wait, it is counted.
func (r *removals) due(pod cache.ObjectName, now time.Time) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait := r.last[pod].Add(podPause).Sub(now); wait > 0 {
		return wait
	}
	if len(r.last) >= maxEnded {
		maps.DeleteFunc(r.last, func(_ cache.ObjectName, last time.Time) bool { return now.Sub(last) >= podPause })
	}
	r.last[pod] = now
	return 0
}

func (q *Queue) remove(ctx context.Context, pod cache.ObjectName, now time.Time) (time.Duration, error) {
	if q.queue.Len() > 0 {
		return removalPause, nil
	}
	if wait := q.removals.due(pod, now); wait > 0 {
		return wait, nil
	}
	if err := q.removals.rate.Wait(ctx); err != nil {
		return 0, err
	}
	q.removals.mu.Lock()
	delete(q.removals.rechecked, pod)
	q.removals.mu.Unlock()
	return q.sync(ctx, pod, now, removing)
}
