package server

import (
	"sync"
	"time"
)

// throttle keeps those who can cause problems as often as they like from filling the
// log: of each cause the first problem is logged, and then one in each logEvery. The
// zero value is ready for use.
type throttle struct {
	mu     sync.Mutex
	causes map[Cause]tally
}

// tally is what was logged of a cause.
type tally struct {
	next      time.Time // when the next is logged
	notLogged int       // since the last one that was
}

const logEvery = time.Second

// admits reports whether a problem is logged, and how many of its cause were not
// since the last one that was.
func (t *throttle) admits(cause Cause, now time.Time) (notLogged int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.causes == nil {
		t.causes = map[Cause]tally{}
	}
	so := t.causes[cause]
	if now.Before(so.next) {
		so.notLogged++
		t.causes[cause] = so
		return 0, false
	}
	t.causes[cause] = tally{next: now.Add(logEvery)}
	return so.notLogged, true
}
