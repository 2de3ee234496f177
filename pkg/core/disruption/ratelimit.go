package disruption

import "time"

// RateLimits limit disruptions per minute. Unused capacity accumulates for at most a minute.
type RateLimits struct {
	Cluster   int           // total; 0: no limit
	Namespace int           // per namespace; 0: no limit
	SlowStart time.Duration // time after start until the full cluster limit applies
}

// startPace is the cluster limit at start unless the full limit is lower. It suffices for a
// workload of twenty replicas with half of them unavailable.
const startPace = 10

func (p RateLimits) cluster(age time.Duration) float64 {
	full := float64(p.Cluster)
	if p.SlowStart <= 0 || age >= p.SlowStart {
		return full
	}
	return max(min(startPace, full), full*float64(max(age, 0))/float64(p.SlowStart))
}

// RateLimiter counts disruptions. Use NewRateLimiter to create one.
type RateLimiter struct {
	pace       RateLimits
	began      time.Time
	cluster    bucket
	namespaces map[string]bucket

	iteration     time.Time
	takes         int
	lastTake      map[string]int  // by namespace: number of its last take
	waiting       map[string]bool // namespaces refused by the cluster limit in this iteration
	waitingBefore map[string]bool // refused in the previous iteration and without a take in this one
}

// NewRateLimiter returns a limiter for a process that starts at now.
func NewRateLimiter(p RateLimits, now time.Time) *RateLimiter {
	return &RateLimiter{
		pace: p, began: now, cluster: bucket{p.cluster(0), now}, namespaces: map[string]bucket{},
		lastTake: map[string]int{}, waiting: map[string]bool{}, waitingBefore: map[string]bool{},
	}
}

// Take reports whether one more disruption in a namespace is allowed in the iteration that began at
// now, and counts it. If the cluster limit is short, the namespace with the least recent take has
// priority, so that no namespace consumes the whole limit.
func (l *RateLimiter) Take(namespace string, now time.Time) bool {
	if !now.Equal(l.iteration) {
		l.iteration, l.waitingBefore, l.waiting = now, l.waiting, map[string]bool{}
	}
	delete(l.waitingBefore, namespace)
	cluster := l.cluster.filled(l.pace.cluster(now.Sub(l.began)), now)
	own, known := l.namespaces[namespace]
	if !known {
		own = bucket{float64(l.pace.Namespace), now}
	}
	own = own.filled(float64(l.pace.Namespace), now)
	if l.pace.Namespace > 0 && own.level < 1 {
		return false
	}
	if l.pace.Cluster > 0 && cluster.level < float64(1+l.reserved(namespace)) {
		l.waiting[namespace] = true
		return false
	}
	cluster.level--
	own.level--
	l.cluster = cluster
	l.prune(now)
	l.namespaces[namespace] = own
	l.takes++
	l.lastTake[namespace] = l.takes
	delete(l.waiting, namespace)
	return true
}

func (l *RateLimiter) reserved(namespace string) (n int) {
	for _, names := range [...]map[string]bool{l.waiting, l.waitingBefore} {
		for name := range names {
			if l.lastTake[name] < l.lastTake[namespace] {
				n++
			}
		}
	}
	return n
}

// Return undoes Take for a disruption that did not happen.
func (l *RateLimiter) Return(namespace string) {
	l.cluster.level++
	if own, known := l.namespaces[namespace]; known {
		own.level++
		l.namespaces[namespace] = own
	}
}

func (l *RateLimiter) prune(now time.Time) {
	for name, b := range l.namespaces {
		if now.Sub(b.at) > time.Minute {
			delete(l.namespaces, name)
			delete(l.lastTake, name)
		}
	}
}

// bucket is a token bucket with a capacity of one minute.
type bucket struct {
	level float64
	at    time.Time
}

func (b bucket) filled(perMinute float64, now time.Time) bucket {
	if now.After(b.at) {
		b.level, b.at = min(b.level+perMinute*now.Sub(b.at).Minutes(), perMinute), now
	}
	return b
}
