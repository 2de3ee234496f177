package target

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hang is a kind of which a request timed out.
type hang struct {
	namespace string // of the object
	all       bool   // one of another namespace timed out, too
	until     time.Time
}

// hangs reports whether a request for something of a kind timed out within hangPause, in this namespace or in two: a
// conversion webhook or an API server of that kind that does not answer must not hold up what is asked
// of other kinds, and one namespace whose objects take long not those of others.
func (c *scaleCache) hangs(key Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hanging[key.GroupKind()]
	return time.Now().Before(h.until) && (h.all || h.namespace == key.Namespace)
}

// timedOut notes that a request for a workload did. What came of requests that were under way already makes no pause longer.
func (c *scaleCache) timedOut(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	h := c.hanging[key.GroupKind()]
	switch {
	case !now.Before(h.until):
		h = hang{namespace: key.Namespace}
	case h.all || h.namespace == key.Namespace:
		return
	default:
		h.all = true
	}
	h.until = now.Add(hangPause)
	c.hanging[key.GroupKind()] = h
}

// forgetHangs drops those that are over.
func (c *scaleCache) forgetHangs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.hanging, func(_ schema.GroupKind, h hang) bool { return !time.Now().Before(h.until) })
}

// join returns the state of an entry. Without an answer, the caller either sends the request for
// the first one, if it is mine, or waits until first is closed.
func (e *entry) join() (known state, first <-chan struct{}, mine bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if mine = !e.known && e.first == nil; mine {
		e.first = make(chan struct{})
	}
	return e.state, e.first, mine
}

// leave ends the request for the first answer.
func (e *entry) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.first)
	e.first = nil
}

// askFirst requests the first answer of an entry that the caller has joined.
func (c *scaleCache) askFirst(ctx context.Context, key Key, e *entry) (answer, error) {
	defer e.leave()
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	if c.hangs(key) {
		return answer{}, ErrHangs
	}
	if !c.mayWait(key.Namespace) {
		return answer{}, ErrNotRead
	}
	began := time.Now()
	defer func() { c.waited(key.Namespace, time.Since(began)) }()
	return c.renew(ctx, key, e, firstTimeout)
}

// mayWait reports whether a caller of get may wait for one more workload of a namespace.
func (c *scaleCache) mayWait(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.counting) >= firstsLife {
		clear(c.firsts)
		c.firstsAll, c.counting = 0, now
	}
	return c.firsts[namespace] < c.mostFirst && c.firstsAll < c.mostFirstOfAll
}

// waited notes for how long a caller of get did.
func (c *scaleCache) waited(namespace string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.firsts[namespace] += d
	c.firstsAll += d
}
