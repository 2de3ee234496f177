package lookup

import (
	"context"
	"sync"

	"loadline.dev/loadline/pkg/kube/target"
)

// Scout reads ahead what Find will need of kinds that no informer holds, so that
// Find itself never waits for the API server. It is safe for concurrent use.
type Scout struct {
	read  func(ctx context.Context, key target.Key)
	ready chan struct{} // has one value while the queue may hold something

	mu     sync.Mutex
	queue  []target.Key
	queued map[target.Key]bool
}

// scouts is how many answers are awaited at the same time.
const scouts = 4

// NewScout returns a Scout that reads workloads, and what owns them, with read.
func NewScout(read func(ctx context.Context, key target.Key)) *Scout {
	return &Scout{read: read, ready: make(chan struct{}, 1), queued: map[target.Key]bool{}}
}

// Want has a workload read soon. It does not wait; a workload that waits already
// is read once.
func (s *Scout) Want(key target.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued[key] {
		return
	}
	s.queued[key] = true
	s.queue = append(s.queue, key)
	s.wake()
}

func (s *Scout) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Run reads until ctx ends.
func (s *Scout) Run(ctx context.Context) {
	var done sync.WaitGroup
	for range scouts {
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

// next takes the first of the queue and wakes another reader for the rest.
func (s *Scout) next() (key target.Key, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return target.Key{}, false
	}
	key, s.queue = s.queue[0], s.queue[1:]
	delete(s.queued, key)
	if len(s.queue) > 0 {
		s.wake()
	}
	return key, true
}
