package observe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	limit "golang.org/x/time/rate"
)

const (
	removalRate  = 5 // notes in a second
	removalBurst = 5
	// removalPause is how long removals wait while pods wait to be judged.
	removalPause = time.Second
)

// Remover takes notes off pods: actuate.Cluster, or actuate.Rehearsal.
type Remover interface {
	RemoveNote(ctx context.Context, pod *corev1.Pod) error
}

// removals are the pods with notes that nothing may follow from. Every user who may annotate pods can
// write such notes, so their removal has a rate of its own, namespaces take turns, and pods that wait to be
// judged go first.
type removals struct {
	queue podQueue
	rate  *limit.Limiter
}

func newRemovals() *removals {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstPause, longPause)
	return &removals{queue: takingTurns(limiter), rate: limit.NewLimiter(removalRate, removalBurst)}
}

// later leaves a pod to the removals. Its caller is called again when an event of the pod comes.
func (r *removals) later(pod cache.ObjectName) { r.queue.Add(pod) }

// remove removes the note of a pod if nothing follows from it still.
func (q *Queue) remove(ctx context.Context, pod cache.ObjectName, now time.Time) (time.Duration, error) {
	if q.queue.Len() > 0 {
		return removalPause, nil
	}
	if err := q.removals.rate.Wait(ctx); err != nil {
		return 0, err
	}
	return q.sync(ctx, pod, now, removing)
}
