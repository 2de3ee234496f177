package target

import (
	"maps"
	"time"
)

const (
	// mostUnread is how many workloads of a namespace wait to be read because somebody
	// asked a Remembering resolver for them. Anybody can write any owner into a pod;
	// what is known to be there must not have to wait behind all of these.
	mostUnread = 16
	// unreadLife is after how long one that was not read makes room for others: whoever
	// reads may have dropped it.
	unreadLife = time.Minute
)

// unread are workloads that wait to be read, by namespace, each with when it was wanted.
type unread map[string]map[Key]time.Time

// want reports whether a workload is one to read, as far as its namespace has some left.
func (c *scaleCache) want(key Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] != nil {
		return false // an answer is on its way
	}
	now, some := time.Now(), c.unread[key.Namespace]
	if _, waits := some[key]; waits {
		return true // but it may have been dropped
	}
	if len(some) >= mostUnread {
		c.unread.age(key.Namespace, now)
		if len(c.unread[key.Namespace]) >= mostUnread {
			return false
		}
	}
	if c.unread[key.Namespace] == nil {
		c.unread[key.Namespace] = map[Key]time.Time{}
	}
	c.unread[key.Namespace][key] = now
	return true
}

// drop takes out a workload that is being read.
func (u unread) drop(key Key) {
	delete(u[key.Namespace], key)
	if len(u[key.Namespace]) == 0 {
		delete(u, key.Namespace)
	}
}

// age takes out what has been waiting for too long.
func (u unread) age(namespace string, now time.Time) {
	maps.DeleteFunc(u[namespace], func(_ Key, wanted time.Time) bool { return now.Sub(wanted) >= unreadLife })
	if len(u[namespace]) == 0 {
		delete(u, namespace)
	}
}

// tidy takes out what has been waiting for too long in any namespace.
func (c *scaleCache) tidy(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for namespace := range c.unread {
		c.unread.age(namespace, now)
	}
}
