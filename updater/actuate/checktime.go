package actuate

import (
	"maps"
	"sync"
	"time"
)

// The checks for one namespace take at most mostShare of each shareInterval, so that large objects of
// one tenant do not hold up the others, and all checks at most allShares. A check that has begun ends.
const (
	shareInterval = time.Minute
	mostShare     = 5 * time.Second
	allShares     = 20 * time.Second
	everywhere    = "" // the namespace that stands for all
)

// timeShare counts the time that checks have taken since a minute began, by namespace. It is safe for
// concurrent use.
type timeShare struct {
	mu    sync.Mutex
	taken map[string]share
}

type share struct {
	minute time.Time
	taken  time.Duration
}

// spent reports whether checks for a namespace may take no more time.
func (t *timeShare) spent(namespace string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, most := range map[string]time.Duration{namespace: mostShare, everywhere: allShares} {
		if s, known := t.taken[name]; known && now.Sub(s.minute) < shareInterval && s.taken >= most {
			return true
		}
	}
	return false
}

// take counts the time of a check that has ended.
func (t *timeShare) take(namespace string, began, ended time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.taken, func(_ string, s share) bool { return began.Sub(s.minute) >= shareInterval })
	if t.taken == nil {
		t.taken = map[string]share{}
	}
	for _, name := range []string{namespace, everywhere} {
		s, known := t.taken[name]
		if !known {
			s.minute = began
		}
		s.taken += ended.Sub(began)
		t.taken[name] = s
	}
}
