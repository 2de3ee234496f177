package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/e2e/harness"
)

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

// readyWatch remembers the smallest number of ready pods that was seen.
type readyWatch struct {
	mu  sync.Mutex
	min int
}

// watchReady looks at the ready pods of a workload until the test ends.
func watchReady(t *testing.T, w harness.Workload) *readyWatch {
	watch := &readyWatch{min: int(w.Replicas)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for {
			if list, err := cluster.Pods(ctx, w); err == nil {
				ready := 0
				for _, pod := range list {
					if isReady(&pod) {
						ready++
					}
				}
				watch.mu.Lock()
				watch.min = min(watch.min, ready)
				watch.mu.Unlock()
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return watch
}

func (w *readyWatch) fewest() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.min
}
