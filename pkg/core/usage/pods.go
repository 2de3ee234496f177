package usage

// podIndex finds the first tracked container of a pod; none = it has none. Each
// namespace has a map of its own: keys are half as long then, and a cluster's pods do
// not move all at once when a table grows.
type podIndex struct {
	spaces map[string]map[string]int32

	// What was looked up last: what comes for all containers of a pod, and all pods
	// of a namespace, comes one after the other.
	namespace string
	space     map[string]int32 // nil = nothing was
	pod       string           // empty = nothing was, or it changed
	first     int32
}

func newPodIndex() podIndex { return podIndex{spaces: map[string]map[string]int32{}} }

// find looks a pod up and changes nothing.
func (x *podIndex) find(namespace, pod string) int32 {
	if first, known := x.spaces[namespace][pod]; known {
		return first
	}
	return none
}

// recall is find for one who may change the store, and much faster for the pod or
// namespace of the last time.
func (x *podIndex) recall(namespace, pod string) int32 {
	if x.space == nil || x.namespace != namespace {
		space := x.spaces[namespace]
		if space == nil {
			return none
		}
		x.namespace, x.space, x.pod = namespace, space, ""
	}
	if x.pod == pod && pod != "" {
		return x.first
	}
	first, known := x.space[pod]
	if !known {
		return none
	}
	x.pod, x.first = pod, first
	return first
}

// put sets the first container of a pod.
func (x *podIndex) put(namespace, pod string, first int32) {
	if x.space == nil || x.namespace != namespace {
		if x.spaces[namespace] == nil {
			x.spaces[namespace] = map[string]int32{}
		}
		x.namespace, x.space = namespace, x.spaces[namespace]
	}
	x.space[pod] = first
	x.pod, x.first = pod, first
}

// remove drops a pod.
func (x *podIndex) remove(namespace, pod string) {
	delete(x.spaces[namespace], pod)
	if len(x.spaces[namespace]) == 0 {
		delete(x.spaces, namespace)
		x.space = nil
	}
	x.pod = ""
}
