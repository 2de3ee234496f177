package target

import (
	"cmp"
	"slices"
)

// mostFailed is how many answers that are errors are kept for one namespace.
// Anybody can write any owner into a pod: what exists is bounded by the cluster,
// what does not exist by nothing else.
const mostFailed = 1000

// shed drops errors of namespaces that have more than mostFailed, those first that
// nobody has read for longest.
func (c *scaleCache) shed(entries map[Key]*entry) {
	type failed struct {
		key  Key
		read int64
	}
	all := map[string][]failed{}
	for key, e := range entries {
		e.mu.RLock()
		if e.known && e.err != nil {
			all[key.Namespace] = append(all[key.Namespace], failed{key, e.read.Load()})
		}
		e.mu.RUnlock()
	}
	for _, some := range all {
		if len(some) <= mostFailed {
			continue
		}
		slices.SortFunc(some, func(a, b failed) int { return cmp.Compare(a.read, b.read) })
		for _, f := range some[:len(some)-mostFailed] {
			c.drop(f.key)
			delete(entries, f.key)
		}
	}
}
