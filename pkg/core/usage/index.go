package usage

// Index finds things by namespace and key. Each namespace has a map of its own: keys
// are shorter then, and what is there of other namespaces is not touched, which would
// be cold, when a table grows while a cluster comes in, one namespace after the other.
type Index[K comparable, V any] struct {
	spaces    map[string]map[K]V
	namespace string // that was found last
	space     map[K]V
}

// NewIndex returns an empty index.
func NewIndex[K comparable, V any]() Index[K, V] { return Index[K, V]{spaces: map[string]map[K]V{}} }

// Find looks a key up and changes nothing.
func (x *Index[K, V]) Find(namespace string, key K) (value V, known bool) {
	value, known = x.spaces[namespace][key]
	return value, known
}

// FindNear is Find for the goroutine that changes the index: it remembers the namespace of
// the last call, and is faster where the next one is in the same.
func (x *Index[K, V]) FindNear(namespace string, key K) (value V, known bool) {
	if !x.enter(namespace) {
		return value, false
	}
	value, known = x.space[key]
	return value, known
}

// enter makes a namespace the one that was found last, and reports whether it holds
// anything.
func (x *Index[K, V]) enter(namespace string) (known bool) {
	if x.space != nil && x.namespace == namespace {
		return true
	}
	space := x.spaces[namespace]
	if space != nil {
		x.namespace, x.space = namespace, space
	}
	return space != nil
}

// Put sets the value of a key.
func (x *Index[K, V]) Put(namespace string, key K, value V) {
	if !x.enter(namespace) {
		x.namespace, x.space = namespace, map[K]V{}
		x.spaces[namespace] = x.space
	}
	x.space[key] = value
}

// Remove drops a key, if it is there.
func (x *Index[K, V]) Remove(namespace string, key K) {
	delete(x.spaces[namespace], key)
	if len(x.spaces[namespace]) == 0 {
		delete(x.spaces, namespace)
		x.space = nil
	}
}
