package olddisruption

import "time"

// RateLimits is how many disruptions a minute are let through. What was not used in a
// minute is not saved up for later ones.
type RateLimits struct {
	Cluster   int           // in all; 0: no limit
	Namespace int           // in one namespace; 0: no limit
	SlowStart time.Duration // how long after the start until the pace of the cluster is reached
}

// gentle is the pace of the cluster at the start, if the full one is not lower:
// enough for a workload of twenty replicas of which half may be away.
const gentle = 10

// cluster is the pace at a time after the start.
func (p RateLimits) cluster(age time.Duration) float64 {
	full := float64(p.Cluster)
	if p.SlowStart <= 0 || age >= p.SlowStart {
		return full
	}
	return max(min(gentle, full), full*float64(max(age, 0))/float64(p.SlowStart))
}

// RateLimiter counts disruptions. Make it with NewRateLimiter.
type RateLimiter struct {
	pace       RateLimits
	began      time.Time
	cluster    bucket
	namespaces map[string]bucket

	pass    time.Time
	takes   int
	last    map[string]int  // by namespace: its last take
	waiting map[string]bool // namespaces that the limit of the cluster refuses in this pass
	waited  map[string]bool // and did in the last pass, without an answer in this one
}

// NewRateLimiter returns the limiter of a program that starts at now.
func NewRateLimiter(p RateLimits, now time.Time) *RateLimiter {
	return &RateLimiter{
		pace: p, began: now, cluster: bucket{p.cluster(0), now}, namespaces: map[string]bucket{},
		last: map[string]int{}, waiting: map[string]bool{}, waited: map[string]bool{},
	}
}

// Take reports whether one more disruption in a namespace is let through in the pass that began at
// now, and counts it if so. Where the limit of the cluster is short, the namespace that took least
// recently comes first, so that no namespace uses the whole limit.
func (l *RateLimiter) Take(namespace string, now time.Time) bool {
	if !now.Equal(l.pass) {
		l.pass, l.waited, l.waiting = now, l.waiting, map[string]bool{}
	}
	delete(l.waited, namespace)
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
	l.last[namespace] = l.takes
	delete(l.waiting, namespace)
	return true
}

// reserved returns how many other namespaces wait and took less recently.
func (l *RateLimiter) reserved(namespace string) (n int) {
	for _, names := range [...]map[string]bool{l.waiting, l.waited} {
		for name := range names {
			if l.last[name] < l.last[namespace] {
				n++
			}
		}
	}
	return n
}

// Return takes back what Take counted, for a disruption that did not happen.
func (l *RateLimiter) Return(namespace string) {
	l.cluster.level++
	if own, known := l.namespaces[namespace]; known {
		own.level++
		l.namespaces[namespace] = own
	}
}

// prune forgets namespaces in which nothing happened for a while.
func (l *RateLimiter) prune(now time.Time) {
	for name, b := range l.namespaces {
		if now.Sub(b.at) > time.Minute {
			delete(l.namespaces, name)
			delete(l.last, name)
		}
	}
}

// bucket fills up to one minute's worth.
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
