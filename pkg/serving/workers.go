package serving

import (
	"context"
	"sync"
)

// InOrder does items with up to so many workers, each as soon as one is free, and returns
// how many were begun: from the first on which may says no, none is. do is called with the
// number of the worker, from 0, so that each can have memory of its own.
func InOrder[T any](workers int, items []T, may func(i int) bool, do func(worker int, item T)) int {
	var mu sync.Mutex
	next, ended := 0, false
	take := func() (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if ended = ended || next == len(items) || !may(next); ended {
			return 0, false
		}
		next++
		return next - 1, true
	}
	var all sync.WaitGroup
	for worker := range min(workers, len(items)) {
		all.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				do(worker, items[i])
			}
		})
	}
	all.Wait()
	return next
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
