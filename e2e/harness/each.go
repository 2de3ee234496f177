package harness

import (
	"context"
	"sync"
)

const creators = 8

// Each calls do for every number below n, with some calls at a time, and returns the first error.
func Each(ctx context.Context, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	numbers := make(chan int)
	for range creators {
		workers.Go(func() {
			for i := range numbers {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		numbers <- i
	}
	close(numbers)
	workers.Wait()
	return context.Cause(ctx)
}
