package serving

import (
	"context"
	"time"
)

const (
	earlyDelay = time.Second     // OOM kills often come several at once
	earlyGap   = 5 * time.Second // least time between two early passes
)

// RunEvery calls pass after each interval until ctx ends, and early soon after wake
// receives: what cannot wait for the next pass. A slow pass makes ticks drop; no two
// calls overlap.
func RunEvery(ctx context.Context, interval time.Duration, wake <-chan struct{}, pass, early func(now time.Time)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var soon <-chan time.Time
	var last time.Time
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			pass(time.Now()) // the tick may be from long before, if the last pass was slow
		case <-wake:
			if soon == nil {
				soon = time.After(max(earlyDelay, earlyGap-time.Since(last)))
			}
		case <-soon:
			soon, last = nil, time.Now()
			early(last)
		}
	}
}
