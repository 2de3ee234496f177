package actuate

import (
	"maps"
	"sync"
	"time"
)

// The limits bound the time of checks, so that large objects of one tenant do not delay the others. A check
// that has started runs to its end.
const (
	checkInterval         = time.Minute      // the limits apply to each interval
	maxNamespaceCheckTime = 4 * time.Second  // for one namespace
	maxTotalCheckTime     = 20 * time.Second // for all namespaces
	allNamespaces         = ""               // key of the total
)

// checkTime counts the time that checks take in each interval, by namespace. It is safe for concurrent use.
type checkTime struct {
	mu          sync.Mutex
	byNamespace map[string]intervalTime
}

type intervalTime struct {
	start time.Time
	taken time.Duration
}

// exhausted reports whether checks for a namespace must wait for the next interval.
func (t *checkTime) exhausted(namespace string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, limit := range map[string]time.Duration{namespace: maxNamespaceCheckTime, allNamespaces: maxTotalCheckTime} {
		if s, known := t.byNamespace[name]; known && now.Sub(s.start) < checkInterval && s.taken >= limit {
			return true
		}
	}
	return false
}

// add counts the time of a check that has ended.
func (t *checkTime) add(namespace string, began, ended time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.byNamespace, func(_ string, s intervalTime) bool { return began.Sub(s.start) >= checkInterval })
	if t.byNamespace == nil {
		t.byNamespace = map[string]intervalTime{}
	}
	for _, name := range []string{namespace, allNamespaces} {
		s, known := t.byNamespace[name]
		if !known {
			s.start = began
		}
		s.taken += ended.Sub(began)
		t.byNamespace[name] = s
	}
}
