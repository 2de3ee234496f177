package target

import (
	"context"
	"slices"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// Prefetcher reads ahead what Find will need of kinds that no informer holds, so that Find itself never waits for the
// API server. Anybody can write any owner into a pod, so there is a bound, and each namespace has the same share of it
// and of the reads. It is safe for concurrent use.
type Prefetcher struct {
	read  func(ctx context.Context, key Key)
	ready chan struct{} // has one value while something may wait

	mu      sync.Mutex
	waiting map[string][]Key // by namespace, in order; none is empty
	order   []string         // of namespaces; the first is read next
	known   map[Key]bool     // those that wait
}

const (
	// readers is how many answers are awaited at the same time.
	readers = 4
	// mostWaiting is how many workloads wait to be read, of all namespaces together.
	mostWaiting = 10_000
)

// NewPrefetcher returns one that reads workloads, and what owns them, with read.
func NewPrefetcher(read func(ctx context.Context, key Key)) *Prefetcher {
	return &Prefetcher{read: read, ready: make(chan struct{}, 1), waiting: map[string][]Key{}, known: map[Key]bool{}}
}

// Want has a workload read soon. It does not wait; a workload that waits already is read once. When too many wait, the
// newest of the namespace that has most of them is dropped: the next pod asks for it again.
func (s *Prefetcher) Want(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[key] {
		return
	}
	if len(s.known) >= mostWaiting {
		fullest := s.fullest()
		if len(s.waiting[key.Namespace])+1 >= len(s.waiting[fullest]) {
			return
		}
		s.dropNewest(fullest)
	}
	if len(s.waiting[key.Namespace]) == 0 {
		s.order = append(s.order, key.Namespace)
	}
	s.waiting[key.Namespace] = append(s.waiting[key.Namespace], key)
	s.known[key] = true
	s.wake()
}

// fullest is the namespace of which most workloads wait; of equals the first in the order.
func (s *Prefetcher) fullest() (fullest string) {
	for _, namespace := range s.order {
		if len(s.waiting[namespace]) > len(s.waiting[fullest]) {
			fullest = namespace
		}
	}
	return fullest
}

// dropNewest forgets a workload of a namespace of which more than one waits.
func (s *Prefetcher) dropNewest(namespace string) {
	keys := s.waiting[namespace]
	last := len(keys) - 1
	delete(s.known, keys[last])
	s.waiting[namespace] = slices.Delete(keys, last, last+1)
}

func (s *Prefetcher) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Run reads until ctx ends.
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

// next takes the first workload of the namespace that is next, and wakes another reader for the rest.
func (s *Prefetcher) next() (key Key, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		return Key{}, false
	}
	namespace := s.order[0]
	key, s.order = s.waiting[namespace][0], s.order[1:]
	delete(s.known, key)
	if rest := s.waiting[namespace][1:]; len(rest) > 0 {
		s.waiting[namespace] = rest
		s.order = append(s.order, namespace)
	} else {
		delete(s.waiting, namespace)
	}
	if len(s.order) > 0 {
		s.wake()
	}
	return key, true
}

// Recheck lets Run read the scale subresource of a target soon, and not only when its answer is due:
// a selector that matches no pods may have changed. It does not wait, and does nothing for a target whose
// selector is in a cache, or has not been read yet.
func (r *Resolver) Recheck(namespace string, ref *autoscalingv1.CrossVersionObjectReference) {
	if ref == nil {
		return
	}
	if key := RefKey(namespace, ref); !key.wellKnown() {
		r.scales.expire(key, time.Now())
	}
}

// expire makes a good answer due.
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
