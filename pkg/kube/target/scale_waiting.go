package target

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hangs reports whether a request for something of a kind timed out within hangPause: a conversion webhook
// or an API server of that kind that does not answer must not hold up what is asked of others.
func (c *scaleCache) hangs(kind schema.GroupKind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, hangs := c.hanging[kind]
	if hangs && !time.Now().Before(until) {
		delete(c.hanging, kind)
		return false
	}
	return hangs
}

// timedOut notes that a request for something of a kind did.
func (c *scaleCache) timedOut(kind schema.GroupKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging[kind] = time.Now().Add(hangPause)
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
