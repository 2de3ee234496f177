package policies

import (
	"fmt"
	"maps"
	"time"
)

// After VPAs were refused in a namespace, as by an admission policy, a quota, or because the
// namespace is about to go, it is tried again there after a pause, which doubles each time.
const (
	firstPause = time.Minute
	lastPause  = time.Hour
)

// refusals are the namespaces where VPAs were refused.
type refusals map[string]*refusal

type refusal struct {
	problem string // of the first time, so that the same is said each time
	pause   time.Duration
	until   time.Time
}

// waiting returns why no VPA is made in a namespace now; empty: it may be tried.
func (r refusals) waiting(namespace string, now time.Time) string {
	if known := r[namespace]; known != nil && now.Before(known.until) {
		return known.problem
	}
	return ""
}

// refused notes a refusal, and returns what is wrong.
func (r refusals) refused(namespace string, err error, now time.Time) string {
	known := r[namespace]
	if known == nil {
		known = &refusal{pause: firstPause / 2}
		r[namespace] = known
	}
	known.problem = fmt.Sprintf("VPAs cannot be made in namespace %s: %v", namespace, err)
	known.pause = min(2*known.pause, lastPause)
	known.until = now.Add(known.pause)
	return known.problem
}

// prune forgets namespaces where nothing was tried for long: they may be gone.
func (r refusals) prune(now time.Time) {
	maps.DeleteFunc(r, func(_ string, known *refusal) bool { return now.Sub(known.until) > lastPause })
}

// accepted forgets what was refused in a namespace.
func (r refusals) accepted(namespace string) { delete(r, namespace) }
