package serving

import (
	"context"
	"sync"
	"time"
)

// Turns says how InTurns shares the time of its workers between groups of items.
type Turns[T any] struct {
	Workers int
	Group   func(T) string // such as the namespace of an item
	// Budget is the time of workers, more than 0, that a group may use before all other groups had a turn.
	Budget time.Duration
	// May reports whether an item may be started. Nothing is started after the first no.
	May func(T) bool
	// Do is called with the number of the worker, from 0, so that each can have memory of its own.
	Do func(worker int, item T)
}

// InTurns does items in order with up to so many workers, each as soon as one is free. The items
// of a group that has used its budget wait until those of all other groups are done, and then all
// groups get a new budget. InTurns returns the items that were not started.
func InTurns[T any](items []T, t Turns[T]) (left []T) {
	q := turnQueue[T]{Turns: t, items: items, began: time.Now(), groups: map[string]*turnGroup{}}
	var all sync.WaitGroup
	for worker := range min(t.Workers, len(items)) {
		all.Go(func() {
			for item, group, ok := q.take(); ok; item, group, ok = q.take() {
				t.Do(worker, item)
				q.done(group)
			}
		})
	}
	all.Wait()
	return append(q.items, q.deferred...)
}

// turnQueue is the items that InTurns has not started.
type turnQueue[T any] struct {
	Turns[T]

	mu       sync.Mutex
	began    time.Time
	items    []T // of this round
	deferred []T // to the next round
	groups   map[string]*turnGroup
	ended    bool
}

// turnGroup is the use of workers by a group. Times count from the start of InTurns.
type turnGroup struct {
	used    time.Duration // by finished items in this round, less the start times of running ones
	running int
}

// take returns the next item of a group that has not used its budget.
func (q *turnQueue[T]) take() (item T, group *turnGroup, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Since(q.began)
	for !q.ended {
		if len(q.items) == 0 {
			if len(q.deferred) == 0 {
				break
			}
			q.items, q.deferred = q.deferred, nil
			for _, g := range q.groups {
				g.used = -now * time.Duration(g.running)
			}
		}
		item = q.items[0]
		name := q.Group(item)
		if group = q.groups[name]; group == nil {
			group = &turnGroup{}
			q.groups[name] = group
		}
		if group.used+now*time.Duration(group.running) >= q.Budget {
			q.items, q.deferred = q.items[1:], append(q.deferred, item)
			continue
		}
		if !q.May(item) {
			q.ended = true
			break
		}
		q.items = q.items[1:]
		group.running++
		group.used -= now
		return item, group, true
	}
	return item, nil, false
}

// done charges a finished item to its group.
func (q *turnQueue[T]) done(group *turnGroup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	group.running--
	group.used += time.Since(q.began)
}

// Together runs tasks until all have returned. The first error ends the others
// and is returned.
func Together(ctx context.Context, tasks ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error)
	for _, task := range tasks {
		go func() { ended <- task(ctx) }()
	}
	var first error
	for range tasks {
		if err := <-ended; err != nil && first == nil {
			first = err
			cancel(err)
		}
	}
	return first
}
