package server

import (
	"container/list"
	"context"
	"sync"
)

// budget shares something that there is only so much of. Who comes first is
// served first.
type budget struct {
	mu    sync.Mutex
	left  int
	queue list.List // of *claim
}

// claim is somebody who waits. Granted is closed when it has its amount.
type claim struct {
	amount  int
	granted chan struct{}
}

func newBudget(whole int) *budget { return &budget{left: whole} }

// take waits for an amount until ctx ends. It reports whether it got it; who did
// must give it back.
func (b *budget) take(ctx context.Context, amount int) bool {
	if ctx.Err() != nil {
		return false
	}
	b.mu.Lock()
	if b.queue.Len() == 0 && amount <= b.left {
		b.left -= amount
		b.mu.Unlock()
		return true
	}
	c := &claim{amount, make(chan struct{})}
	place := b.queue.PushBack(c)
	b.mu.Unlock()
	select {
	case <-c.granted:
		return true
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.granted: // at the same moment
		return true
	default:
	}
	b.queue.Remove(place)
	b.serve() // those behind may want less
	return false
}

func (b *budget) give(amount int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += amount
	b.serve()
}

// serve grants what those at the front of the queue wait for. The caller holds
// the mutex.
func (b *budget) serve() {
	for front := b.queue.Front(); front != nil; front = b.queue.Front() {
		c, ok := front.Value.(*claim)
		if !ok || c.amount > b.left {
			return
		}
		b.left -= c.amount
		b.queue.Remove(front)
		close(c.granted)
	}
}
