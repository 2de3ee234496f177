package server

import (
	"context"
	"sync"
	"time"
)

// slots bounds the reviews that are answered at the same time: of all namespaces, of one namespace, and large
// reviews of one namespace. A namespace that sends many reviews waits for its own.
type slots struct {
	all chan struct{} // a value for each review in progress

	mu         sync.Mutex
	namespaces map[string]*namespaceSlots // of reviews that are in progress or wait
}

// namespaceSlots are the slots of one namespace.
type namespaceSlots struct {
	users      int // reviews that are in progress or wait, guarded by slots.mu
	all, large chan struct{}
}

func newSlots(number int) *slots {
	return &slots{all: make(chan struct{}, number), namespaces: map[string]*namespaceSlots{}}
}

// begin waits for the slots of a review. It returns a function that releases them, or nil once half of the
// remaining time of ctx has passed.
func (s *slots) begin(ctx context.Context, namespace string, large bool) (end func()) {
	n := s.enter(namespace)
	needed := []chan struct{}{n.large, n.all, s.all}
	if !large {
		needed = needed[1:]
	}
	start := time.Now()
	for i, slot := range needed {
		if !takeSlot(ctx, start, slot) {
			s.leave(namespace, n, needed[:i])
			return nil
		}
	}
	return func() { s.leave(namespace, n, needed) }
}

func (s *slots) enter(namespace string) *namespaceSlots {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[namespace]
	if n == nil {
		n = &namespaceSlots{all: make(chan struct{}, max(1, cap(s.all)/namespaceShare)), large: make(chan struct{}, largeAtOnce)}
		s.namespaces[namespace] = n
	}
	n.users++
	return n
}

// leave releases slots and forgets a namespace without reviews.
func (s *slots) leave(namespace string, n *namespaceSlots, held []chan struct{}) {
	for _, slot := range held {
		<-slot
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(s.namespaces, namespace)
	}
}

// takeSlot waits for one slot until half of the time since start has passed. Usually one is free and no timer
// is needed.
func takeSlot(ctx context.Context, start time.Time, slot chan struct{}) bool {
	select {
	case slot <- struct{}{}:
		return true
	default:
	}
	waiting, cancel := halfOf(ctx, start)
	defer cancel()
	select {
	case slot <- struct{}{}:
		return true
	case <-waiting.Done():
		return false
	}
}
