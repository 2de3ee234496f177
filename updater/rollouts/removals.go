package rollouts

import (
	"context"
	"maps"
	"sync"
	"time"

	limit "golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/updater/podqueue"
)

const (
	removalRate  = 5 // notes in a second
	removalBurst = 5
	// removalPause is how long removals wait while pods wait to be judged.
	removalPause = time.Second
	// podPause is the minimum time between two removals from a pod: each one rewrites the whole pod.
	podPause = time.Minute
)

// Remover removes notes from pods.
type Remover interface {
	RemoveNote(ctx context.Context, pod *corev1.Pod) error
}

// removals removes invalid notes from pods. Users with write access to pods can write any number of
// them, so removals have their own rate, namespaces take turns, and waiting judgments go first.
type removals struct {
	queue podqueue.Queue
	rate  *limit.Limiter

	mu        sync.Mutex
	rechecked map[cache.ObjectName]bool      // pods whose change no cached record has
	last      map[cache.ObjectName]time.Time // last removal from each pod
}

func newRemovals() *removals {
	return &removals{queue: podqueue.New(maxPause), rate: limit.NewLimiter(removalRate, removalBurst), rechecked: map[cache.ObjectName]bool{}, last: map[cache.ObjectName]time.Time{}}
}

// later leaves a pod to the removals. Its caller is called again when an event of the pod comes.
func (r *removals) later(pod cache.ObjectName) { r.queue.Add(pod) }

// recheckAfter returns when to check a pod again whose change is in no cached record. The record
// cache may be behind the pod cache, and a revert must not wait behind removals.
func (r *removals) recheckAfter(pod cache.ObjectName) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rechecked[pod] {
		return again
	}
	if len(r.rechecked) >= maxEnded {
		clear(r.rechecked)
	}
	r.rechecked[pod] = true
	return stalePause
}

// due returns how long a pod must wait for its next removal. Without a wait, the removal counts.
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

// remove removes the note of a pod if it is still invalid.
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
