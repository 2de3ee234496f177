package serving

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/lease"
)

const (
	earlyDelay = time.Second     // OOM kills often come several at once
	earlyGap   = 5 * time.Second // least time between two early passes
)

// RunEvery calls pass after each interval until ctx ends, and early soon after wake
// receives: what cannot wait for the next pass. A slow pass makes ticks drop; no two
// calls overlap. Under a leader Lease that was not renewed in time it calls neither.
func RunEvery(ctx context.Context, interval time.Duration, wake <-chan struct{}, pass, early func(now time.Time)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var soon <-chan time.Time
	var last time.Time
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			if err := lease.Check(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Skipping iteration")
				continue
			}
			pass(time.Now()) // the tick may be from long before, if the last pass was slow
		case <-wake:
			if soon == nil {
				soon = time.After(max(earlyDelay, earlyGap-time.Since(last)))
			}
		case <-soon:
			if lease.Check(ctx) != nil {
				soon = time.After(earlyDelay)
				continue
			}
			soon, last = nil, time.Now()
			early(last)
		}
	}
}

// Health watches a loop: once active, it reports an error when the last pass
// ended too long ago. It is safe for concurrent use.
type Health struct {
	timeout time.Duration

	mu     sync.Mutex
	active bool
	last   time.Time // end of the last pass
}

// NewHealth returns a Health that is not active yet. The timeout is the longest
// time between two passes that counts as healthy; the programs use five times
// their interval.
func NewHealth(timeout time.Duration) *Health { return &Health{timeout: timeout} }

// Activate starts watching; until then Check always succeeds. So a standby
// replica, or one that still loads its history, is healthy.
func (h *Health) Activate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.active, h.last = true, time.Now()
}

// Tick records that a pass has ended, or that a step of a long one has. A nil Health records nothing.
func (h *Health) Tick() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

// Check returns an error that says for how long no pass has ended.
func (h *Health) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if age := time.Since(h.last); h.active && age > h.timeout {
		return fmt.Errorf("no pass has ended for %s; at most %s is healthy", age.Round(time.Second), h.timeout)
	}
	return nil
}

// Together runs tasks until all have returned. The first error ends the others and is returned.
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
