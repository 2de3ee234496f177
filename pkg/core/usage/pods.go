package usage

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
