package quota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
)

// Room is what is left for the containers of one pod; a kind that is absent is
// not bounded. The zero value bounds nothing.
type Room struct {
	Requests, Limits amount.Resources
}

// names are the resources of a quota that mean the same.
var names = [amount.Kinds]struct{ requests, limits []corev1.ResourceName }{
	amount.CPU:    {[]corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceCPU}, []corev1.ResourceName{corev1.ResourceLimitsCPU}},
	amount.Memory: {[]corev1.ResourceName{corev1.ResourceRequestsMemory, corev1.ResourceMemory}, []corev1.ResourceName{corev1.ResourceLimitsMemory}},
}

// For returns what the quotas of a namespace leave for the ordinary containers of
// a pod: sidecars and overhead are taken off.
func For(pod *corev1.Pod, quotas []*corev1.ResourceQuota) Room {
	var room Room
	for _, q := range quotas {
		if !covers(q, pod) {
			continue
		}
		for k := range amount.Kind(amount.Kinds) {
			for _, name := range names[k].requests {
				room.Requests = tighter(room.Requests, k, name, q)
			}
			for _, name := range names[k].limits {
				room.Limits = tighter(room.Limits, k, name, q)
			}
		}
	}
	if room == (Room{}) {
		return room
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			room = room.without(c.Resources.Requests, c.Resources.Limits)
		}
	}
	return room.without(pod.Spec.Overhead, pod.Spec.Overhead)
}

// tighter takes what a quota leaves of a resource if that is less than known.
func tighter(r amount.Resources, k amount.Kind, name corev1.ResourceName, q *corev1.ResourceQuota) amount.Resources {
	hard, ok := q.Status.Hard[name]
	if !ok {
		return r
	}
	left := max(whole(k, hard)-convert.Amount(k, q.Status.Used[name]), 0)
	if known, ok := r.Get(k); ok && known <= left {
		return r
	}
	return r.With(k, left)
}

// whole reads a bound, rounded down.
func whole(k amount.Kind, q resource.Quantity) amount.Amount {
	a := convert.Amount(k, q)
	if exact := convert.Quantity(k, a); exact.Cmp(q) > 0 {
		a--
	}
	return a
}

func (r Room) without(requests, limits corev1.ResourceList) Room {
	take := func(room amount.Resources, list corev1.ResourceList) amount.Resources {
		used := convert.Resources(list)
		for k := range amount.Kind(amount.Kinds) {
			if left, ok := room.Get(k); ok {
				room = room.With(k, max(left-used.Value(k), 0))
			}
		}
		return room
	}
	return Room{take(r.Requests, requests), take(r.Limits, limits)}
}

// covers tells whether a quota counts a pod. A scope that is not known here
// covers nothing: to be refused is rare, to be cut for nothing is wrong.
func covers(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	for _, scope := range q.Spec.Scopes {
		if !inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, pod) {
			return false
		}
	}
	if q.Spec.ScopeSelector == nil {
		return true
	}
	for _, r := range q.Spec.ScopeSelector.MatchExpressions {
		if !inScope(r, pod) {
			return false
		}
	}
	return true
}

func inScope(r corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return true // a pod that gets requests is not of that class
	case corev1.ResourceQuotaScopePriorityClass:
		return named(r, pod.Spec.PriorityClassName)
	}
	return false
}

func named(r corev1.ScopedResourceSelectorRequirement, class string) bool {
	listed := false
	for _, v := range r.Values {
		listed = listed || v == class
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn:
		return listed
	case corev1.ScopeSelectorOpNotIn:
		return !listed
	case corev1.ScopeSelectorOpExists:
		return class != ""
	case corev1.ScopeSelectorOpDoesNotExist:
		return class == ""
	}
	return false
}
