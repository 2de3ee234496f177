package serving

import (
	"sync"
	"time"

	"k8s.io/klog/v2"
)

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
