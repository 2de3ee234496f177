package snapshot

import "k8s.io/apimachinery/pkg/types"

// VersionCache keeps a converted object while its resourceVersion stays the same. The zero value is empty.
type VersionCache[V any] struct{ current, next map[types.UID]versioned[V] }

type versioned[V any] struct {
	version string
	value   V
}

// Get returns the value of an object. It converts the object if the version is new or empty, given the
// previous value or the zero value. The value is dropped if convert fails.
func (c *VersionCache[V]) Get(uid types.UID, version string, convert func(previous V) (V, error)) (V, error) {
	if c.next == nil {
		c.next = make(map[types.UID]versioned[V], len(c.current))
	}
	known, found := c.current[uid]
	if found && known.version == version && version != "" {
		c.next[uid] = known
		return known.value, nil
	}
	value, err := convert(known.value)
	if err == nil {
		c.next[uid] = versioned[V]{version, value}
	}
	return value, err
}

// Swap drops the entries that were not used since the last call.
func (c *VersionCache[V]) Swap() { c.current, c.next = c.next, nil }
