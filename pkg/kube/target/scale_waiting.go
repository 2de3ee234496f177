package target

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hang records the timeout of a request for a kind.
type hang struct {
	namespace string // of the object
	all       bool   // a request in another namespace timed out too
	until     time.Time
}

// isHanging reports whether requests for a kind timed out within hangPause, in this namespace or in
// two different ones. An unresponsive conversion webhook or API server must not delay other kinds,
// and slow objects of one namespace must not delay other namespaces.
func (c *scaleCache) isHanging(key Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hanging[key.GroupKind()]
	return time.Now().Before(h.until) && (h.all || h.namespace == key.Namespace)
}

// recordTimeout does not extend a pause because of requests that were already pending.
func (c *scaleCache) recordTimeout(key Key) {
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

func (c *scaleCache) dropExpiredHangs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.hanging, func(_ schema.GroupKind, h hang) bool { return !time.Now().Before(h.until) })
}

// join returns the state of an entry. Without a result, the caller must send the first request if
// mine is true, otherwise wait until first is closed.
func (e *entry) join() (known state, first <-chan struct{}, mine bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if mine = !e.known && e.first == nil; mine {
		e.first = make(chan struct{})
	}
	return e.state, e.first, mine
}

func (e *entry) finishFirst() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.first)
	e.first = nil
}

func (c *scaleCache) fetchFirst(ctx context.Context, key Key, e *entry) (scaleInfo, error) {
	defer e.finishFirst()
	if err := ctx.Err(); err != nil {
		return scaleInfo{}, err
	}
	if c.isHanging(key) {
		return scaleInfo{}, ErrHangs
	}
	if !c.mayWait(key.Namespace) {
		return scaleInfo{}, ErrNotRead
	}
	began := time.Now()
	defer func() { c.waited(key.Namespace, time.Since(began)) }()
	return c.refreshEntry(ctx, key, e, firstTimeout)
}

func (c *scaleCache) mayWait(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.windowStart) >= firstWaitWindow {
		clear(c.firstWaits)
		c.totalFirstWait, c.windowStart = 0, now
	}
	return c.firstWaits[namespace] < c.maxFirstWait && c.totalFirstWait < c.maxTotalFirstWait
}

func (c *scaleCache) waited(namespace string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.firstWaits[namespace] += d
	c.totalFirstWait += d
}
