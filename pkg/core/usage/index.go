package usage

// Index finds things by namespace and key. Each namespace has a map of its own. So keys
// are shorter, and while a cluster is read, one namespace after the other, only the map of
// one namespace grows: copying a map of everything would miss the caches of the processor.
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

// enter makes a namespace that holds anything the one that was found last, and reports
// whether it holds anything.
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

// podIndex finds the first tracked container of a pod; none = it has none.
type podIndex struct {
	Index[string, int32]

	// What was looked up last: what comes for all containers of a pod comes one after
	// the other.
	inNamespace, pod string // pod is empty if nothing was, or it changed
	first            int32
}

func newPodIndex() podIndex { return podIndex{Index: NewIndex[string, int32]()} }

// recent looks a pod up. Readers must not use it: it changes the index.
func (x *podIndex) recent(namespace, pod string) int32 {
	if x.pod == pod && x.inNamespace == namespace && pod != "" {
		return x.first
	}
	first, known := x.FindNear(namespace, pod)
	if !known {
		return none
	}
	x.inNamespace, x.pod, x.first = namespace, pod, first
	return first
}

// lead sets the first container of a pod.
func (x *podIndex) lead(namespace, pod string, first int32) {
	x.Put(namespace, pod, first)
	x.inNamespace, x.pod, x.first = namespace, pod, first
}

// drop forgets a pod.
func (x *podIndex) drop(namespace, pod string) {
	x.Remove(namespace, pod)
	x.pod = ""
}

// seriesName names a series in its namespace.
type seriesName struct{ container, labels string }

func (k SeriesKey) name() seriesName { return seriesName{k.Container, k.Labels} }
