package serving

import "sync"

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
