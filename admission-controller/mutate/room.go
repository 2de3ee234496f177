package mutate

import (
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/capacity"
	"loadline.dev/loadline/pkg/core/resources"
)

// Room is what is left for the containers of one pod; a kind that is absent is
// not bounded. The zero value bounds nothing.
type Room struct {
	Requests, Limits resources.List
}

// RoomFor returns what the quotas of a namespace leave for the ordinary containers of
// a pod: sidecars and overhead are taken off.
func RoomFor(pod *corev1.Pod, quotas []*corev1.ResourceQuota) Room {
	var room Room
	traits := convert.Traits(pod)
	for _, q := range quotas {
		if left := convert.Quota(q); capacity.ScopesCover(left.Scopes, traits) {
			room.Requests, room.Limits = tighter(room.Requests, left.Requests), tighter(room.Limits, left.Limits)
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

// tighter takes what a quota leaves where that is less than known.
func tighter(known, left resources.List) resources.List {
	for k := range resources.Kind(resources.Kinds) {
		a, bounded := left.Get(k)
		if before, ok := known.Get(k); bounded && (!ok || a < before) {
			known = known.With(k, max(a, 0))
		}
	}
	return known
}

func (r Room) without(requests, limits corev1.ResourceList) Room {
	take := func(room resources.List, list corev1.ResourceList) resources.List {
		used := convert.Resources(list)
		for k := range resources.Kind(resources.Kinds) {
			if left, ok := room.Get(k); ok {
				room = room.With(k, max(left-used.Value(k), 0))
			}
		}
		return room
	}
	return Room{take(r.Requests, requests), take(r.Limits, limits)}
}
