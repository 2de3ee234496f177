package hostile

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type attack struct {
	name  string
	once  func(ctx context.Context, round int) error
	every time.Duration // pause between repetitions

	round  int          // of the next repetition
	done   atomic.Int64 // repetitions without an error
	failed atomic.Value // last error
}

func (a *attack) run(ctx context.Context, end time.Time) {
	worked := a.done.Load()
	for ctx.Err() == nil && (time.Now().Before(end) || a.done.Load() == worked) {
		if err := a.once(ctx, a.round); err == nil {
			a.done.Add(1)
		} else if ctx.Err() == nil {
			a.failed.Store(err.Error())
		}
		a.round++
		select {
		case <-ctx.Done():
		case <-time.After(a.every):
		}
	}
}

func launch(t *testing.T, duration time.Duration, attacks ...*attack) {
	t.Helper()
	end := time.Now().Add(duration)
	ctx, stop := context.WithDeadline(t.Context(), end.Add(2*time.Minute))
	defer stop()
	var running sync.WaitGroup
	before := make([]int64, len(attacks))
	for i, a := range attacks {
		before[i] = a.done.Load()
		running.Go(func() { a.run(ctx, end) })
	}
	running.Wait()
	for i, a := range attacks {
		t.Logf("%s: repeated %d times, last error: %v", a.name, a.done.Load()-before[i], a.failed.Load())
		if a.done.Load() == before[i] {
			t.Errorf("%s never worked", a.name)
		}
	}
}
