package target

import (
	"context"
	"slices"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// Prefetcher reads workloads of kinds without informer ahead of Find, which therefore never waits
// for the API server. Any user can give a pod any owner, so the queue is bounded, and namespaces
// share the queue and the reads equally. It is safe for concurrent use.
type Prefetcher struct {
	read  func(ctx context.Context, key Key)
	ready chan struct{} // has one value while a workload may be queued

	mu     sync.Mutex
	queues map[string][]Key // by namespace, oldest first; none is empty
	order  []string         // namespaces, next one first
	queued map[Key]bool     // all queued workloads
}

const (
	// readers is the number of concurrent requests.
	readers = 4
	// maxQueued bounds the queue of all namespaces together.
	maxQueued = 10_000
)

// NewPrefetcher returns a Prefetcher that reads workloads and their owners with read.
func NewPrefetcher(read func(ctx context.Context, key Key)) *Prefetcher {
	return &Prefetcher{read: read, ready: make(chan struct{}, 1), queues: map[string][]Key{}, queued: map[Key]bool{}}
}

// Enqueue queues a workload unless it is queued already. It does not block. A full queue drops the
// newest workload of the namespace with the most, and the next pod enqueues it again.
func (s *Prefetcher) Enqueue(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued[key] {
		return
	}
	if len(s.queued) >= maxQueued {
		fullest := s.fullest()
		if len(s.queues[key.Namespace])+1 >= len(s.queues[fullest]) {
			return
		}
		s.dropNewest(fullest)
	}
	if len(s.queues[key.Namespace]) == 0 {
		s.order = append(s.order, key.Namespace)
	}
	s.queues[key.Namespace] = append(s.queues[key.Namespace], key)
	s.queued[key] = true
	s.wake()
}

func (s *Prefetcher) fullest() (fullest string) {
	for _, namespace := range s.order {
		if len(s.queues[namespace]) > len(s.queues[fullest]) {
			fullest = namespace
		}
	}
	return fullest
}

func (s *Prefetcher) dropNewest(namespace string) {
	keys := s.queues[namespace]
	last := len(keys) - 1
	delete(s.queued, keys[last])
	s.queues[namespace] = slices.Delete(keys, last, last+1)
}

func (s *Prefetcher) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Run reads queued workloads until ctx ends.
func (s *Prefetcher) Run(ctx context.Context) {
	var done sync.WaitGroup
	for range readers {
		done.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-s.ready:
				}
				for key, ok := s.next(); ok && ctx.Err() == nil; key, ok = s.next() {
					s.read(ctx, key)
				}
			}
		})
	}
	done.Wait()
}

// next removes the oldest workload of the next namespace, and wakes another reader for the rest.
func (s *Prefetcher) next() (key Key, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		return Key{}, false
	}
	namespace := s.order[0]
	key, s.order = s.queues[namespace][0], s.order[1:]
	delete(s.queued, key)
	if rest := s.queues[namespace][1:]; len(rest) > 0 {
		s.queues[namespace] = rest
		s.order = append(s.order, namespace)
	} else {
		delete(s.queues, namespace)
	}
	if len(s.order) > 0 {
		s.wake()
	}
	return key, true
}

// Recheck makes Run read the scale subresource of a target early, because a selector without
// matching pods may be outdated. It does not block, and ignores cached kinds and unread targets.
func (r *Resolver) Recheck(namespace string, ref *autoscalingv1.CrossVersionObjectReference) {
	if ref == nil {
		return
	}
	if key := RefKey(namespace, ref); !key.wellKnown() {
		r.scales.expire(key, time.Now())
	}
}

func (c *scaleCache) expire(key Key, now time.Time) {
	c.mu.Lock()
	e := c.entries[key]
	c.mu.Unlock()
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known && e.err == nil && now.Before(e.due) {
		e.due = now
	}
}
