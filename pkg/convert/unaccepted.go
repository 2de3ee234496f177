package convert

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/resources"
)

// Unaccepted reports whether the kubelet of a pod's node has not said yet that it takes the pod. Who
// binds a pod decides its node, whether that has room or not.
func Unaccepted(pod *corev1.Pod) bool {
	return pod.Status.StartTime == nil && pod.Status.Phase == corev1.PodPending
}

// Waiting returns what of the Footprint of a pod its kubelet has not granted, because a resize waits
// for room. Who may resize a pod decides how much it asks for.
func Waiting(pod *corev1.Pod) (more resources.List) {
	if resizePending(pod) == nil {
		return more
	}
	running, starting := footprints(pod, granted, wholeGranted(pod))
	asks, has := Footprint(pod), running.Larger(starting)
	for k := range resources.Kind(resources.Kinds) {
		if by := asks.Value(k) - has.Value(k); by > 0 {
			more = more.With(k, by)
		}
	}
	return more
}

// ResizeInfeasible reports whether the kubelet of a pod said that what the pod asks for can never be granted on its node.
func ResizeInfeasible(pod *corev1.Pod) bool {
	c := resizePending(pod)
	return c != nil && c.Reason == corev1.PodReasonInfeasible
}

// resizePending returns the condition by which the kubelet of a pod says that a resize is not granted; nil: it does not.
func resizePending(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// Arrival is what a node does not hold yet: a pod that its kubelet has not accepted, or what a
// resize waits for.
type Arrival struct {
	UID     types.UID // of the pod
	Created time.Time // the pod
	Takes   resources.List
}

// Accepted returns those of the arrivals at a node that its kubelet will accept, which has so much
// left beside all else: it refuses, or puts off, what does not fit. Kinds that are not in left are
// not limited. As kubelets do, it takes the oldest pods first. It sorts arrivals; the result is in
// that order, too.
func Accepted(left resources.List, arrivals []Arrival) []Arrival {
	slices.SortFunc(arrivals, func(a, b Arrival) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID)) })
	return slices.DeleteFunc(arrivals, func(a Arrival) bool {
		rest := left
		for k := range resources.Kind(resources.Kinds) {
			has, limited := left.Get(k)
			if !limited || a.Takes.Value(k) == 0 {
				continue
			}
			if a.Takes.Value(k) > has {
				return true
			}
			rest = rest.With(k, has.Add(-a.Takes.Value(k)))
		}
		left = rest
		return false
	})
}
