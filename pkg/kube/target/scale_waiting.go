package target

import "time"

// hang is a kind of which a request timed out.
type hang struct {
	namespace string // of the object
	all       bool   // one of another namespace timed out, too
	until     time.Time
}

// hangs reports whether a request for something of a kind timed out within hangPause, in this namespace or in two others: a
// conversion webhook or an API server of that kind that does not answer must not hold up what is asked
// of other kinds, and one namespace whose objects take long not those of others.
func (c *scaleCache) hangs(key Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, known := c.hanging[key.GroupKind()]
	if known && !time.Now().Before(h.until) {
		delete(c.hanging, key.GroupKind())
		return false
	}
	return known && (h.all || h.namespace == key.Namespace)
}

// timedOut notes that a request for a workload did.
func (c *scaleCache) timedOut(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, h := time.Now(), c.hanging[key.GroupKind()]
	others := now.Before(h.until) && (h.all || h.namespace != key.Namespace)
	c.hanging[key.GroupKind()] = hang{key.Namespace, others, now.Add(hangPause)}
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
