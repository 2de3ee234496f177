package serving

import (
	"context"
	"fmt"
	"runtime/debug"
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

// NewHealth returns a Health that is not active yet. The timeout is the longest time between two passes that counts as
// healthy; the programs use five times their interval.
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

// Guard turns a panic of do into an error, so that one object does not stop the work on others.
func Guard(do func() error) (err error) {
	defer Recover(&err)
	return do()
}

// Recover turns a panic into an error. It must be deferred.
func Recover(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
	}
}

// reminderInterval is how often a problem that lasts is logged.
const reminderInterval = 10 * time.Minute

// Reminder says when a problem is worth a line in the log: when it begins, when it is
// another one, and every ten minutes. The zero Reminder knows of no problem.
type Reminder struct {
	problem       string
	began, logged time.Time
}

// Due takes the problem that there is now, empty if there is none. It reports whether that is
// to be logged, an end included, and how long there has been any.
func (r *Reminder) Due(problem string, now time.Time) (due bool, lasted time.Duration) {
	if r.problem != "" {
		lasted = now.Sub(r.began)
	} else {
		r.began = now
	}
	due = problem != r.problem || problem != "" && now.Sub(r.logged) >= reminderInterval
	if due {
		r.logged = now
	}
	r.problem = problem
	return due, lasted
}

// Throttle limits how often a problem is logged that clients can cause at will: for each cause the
// first one, then one per second. The zero value is ready for use.
type Throttle struct {
	mu     sync.Mutex
	causes map[string]tally
}

// tally counts the problems of one cause.
type tally struct {
	next      time.Time // when the next one is logged
	notLogged int       // since the last one that was logged
}

const logEvery = time.Second

// Admits reports whether a problem is logged, and how many of its cause were not logged since the
// last one. Causes must be a closed set.
func (t *Throttle) Admits(cause string, now time.Time) (notLogged int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.causes == nil {
		t.causes = map[string]tally{}
	}
	last := t.causes[cause]
	if now.Before(last.next) {
		last.notLogged++
		t.causes[cause] = last
		return 0, false
	}
	t.causes[cause] = tally{next: now.Add(logEvery)}
	return last.notLogged, true
}

// errorLog logs the messages of the HTTP server, such as failed handshakes.
type errorLog struct {
	log      klog.Logger
	throttle *Throttle
}

// Write logs one message, unless there are many.
func (l errorLog) Write(message []byte) (int, error) {
	if notLogged, ok := l.throttle.Admits("", time.Now()); ok {
		l.log.V(4).Info("HTTP server", "message", string(message), "notLogged", notLogged)
	}
	return len(message), nil
}
