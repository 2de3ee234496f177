package target

import (
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// Recheck lets Run read the scale subresource of a target soon, and not only when its answer is due:
// a selector that matches no pods may have changed. It does not wait, and does nothing for a target whose
// selector is in a cache, or has not been read yet.
func (r *Resolver) Recheck(namespace string, ref *autoscalingv1.CrossVersionObjectReference) {
	if ref == nil {
		return
	}
	if key := RefKey(namespace, ref); !key.wellKnown() {
		r.scales.expire(key, time.Now())
	}
}

// expire makes a good answer due.
func (c *scaleCache) expire(key Key, now time.Time) {
	c.mu.Lock()
	e := c.entries[key]
	c.mu.Unlock()
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known && e.err == nil && now.Before(e.due) {
		e.due = now
	}
}
