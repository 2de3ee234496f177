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
	earlyDelay       = time.Second     // OOM kills often come in groups
	minEarlyInterval = 5 * time.Second // minimum time between two early iterations
)

// RunEvery calls runOnce after each interval until ctx ends, and runEarly shortly after wake
// receives. A slow iteration drops ticks. Calls never overlap. It calls neither while the leader
// Lease is not renewed in time.
func RunEvery(ctx context.Context, interval time.Duration, wake <-chan struct{}, runOnce, runEarly func(now time.Time)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var earlyTimer <-chan time.Time
	var last time.Time
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			if err := lease.Check(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Skipping iteration")
				continue
			}
			runOnce(time.Now()) // not the tick, which is old after a slow iteration
		case <-wake:
			if earlyTimer == nil {
				earlyTimer = time.After(max(earlyDelay, minEarlyInterval-time.Since(last)))
			}
		case <-earlyTimer:
			if lease.Check(ctx) != nil {
				earlyTimer = time.After(earlyDelay)
				continue
			}
			earlyTimer, last = nil, time.Now()
			runEarly(last)
		}
	}
}

// Health watches a loop. Once active, it reports an error if the last iteration ended too long ago.
// It is safe for concurrent use.
type Health struct {
	timeout time.Duration

	mu     sync.Mutex
	active bool
	last   time.Time // end of the last iteration
}

// NewHealth returns an inactive Health. timeout is the maximum healthy time between iterations.
func NewHealth(timeout time.Duration) *Health { return &Health{timeout: timeout} }

// Activate starts watching. Before, Check succeeds, as for a standby or while history is loading.
func (h *Health) Activate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.active, h.last = true, time.Now()
}

// Tick records the end of an iteration, or of a step of a long one. A nil Health records nothing.
func (h *Health) Tick() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

// Check returns an error if no iteration has ended within the timeout.
func (h *Health) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if age := time.Since(h.last); h.active && age > h.timeout {
		return fmt.Errorf("no iteration has ended for %s, maximum is %s", age.Round(time.Second), h.timeout)
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

const reminderInterval = 10 * time.Minute

// Reminder decides when to log a problem: at its start, at each change, and every ten minutes.
type Reminder struct {
	problem       string
	began, logged time.Time
}

// Due reports whether to log the current problem, or its end, and how long any problem has lasted.
// An empty problem means none.
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

// Throttle limits the log rate of problems that clients can cause at will: the first one of each
// cause, then one per second. The zero value is ready for use.
type Throttle struct {
	mu     sync.Mutex
	causes map[string]causeCount
}

type causeCount struct {
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
		t.causes = map[string]causeCount{}
	}
	last := t.causes[cause]
	if now.Before(last.next) {
		last.notLogged++
		t.causes[cause] = last
		return 0, false
	}
	t.causes[cause] = causeCount{next: now.Add(logEvery)}
	return last.notLogged, true
}

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
