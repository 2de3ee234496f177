package mutate

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/nodefit"
	"loadline.dev/loadline/pkg/kube/target"
)

// Room is the remaining quota for the containers of one pod. An absent kind is unbounded. The zero
// value bounds nothing.
type Room struct {
	Requests, Limits resources.List
}

// RoomFor returns the remaining quota of a namespace for the ordinary containers of a pod, after
// its sidecars and overhead.
func RoomFor(pod *corev1.Pod, quotas []*corev1.ResourceQuota) Room {
	var room Room
	traits := convert.Traits(pod)
	for _, q := range quotas {
		if left := convert.Quota(q); disruption.ScopesCover(left.Scopes, traits) {
			room.Requests, room.Limits = tighter(room.Requests, left.Requests), tighter(room.Limits, left.Limits)
		}
	}
	if room == (Room{}) {
		return room
	}
	return room.ordinary(pod)
}

func (r Room) ordinary(pod *corev1.Pod) Room {
	beside(pod, func(requests, limits corev1.ResourceList) { r = r.without(requests, limits) })
	return r
}

// forEachExtra calls count for each sidecar and for the pod overhead.
func beside(pod *corev1.Pod, count func(requests, limits corev1.ResourceList)) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			count(c.Resources.Requests, c.Resources.Limits)
		}
	}
	count(pod.Spec.Overhead, pod.Spec.Overhead)
}

// tighter returns the smaller of two bounds for each kind. Negative quota counts as 0.
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

// Change is a cut of one kind in one container.
type Change struct {
	Container string
	Kind      resources.Kind
	From, To  resources.Amount // request, equal if no cut makes the pod fit
}

// Cut returns the resources of the containers within the room: the desired ones if they fit, else
// the largest fraction of the way from minimum to desired that fits. If not even the minimum fits,
// they get the minimum as the nearest value. Desired and minimum have an entry for each container
// of the pod, in its order. Limits move with the requests.
func (r Room) Cut(pod policy.Pod, least, wanted []policy.ContainerTarget) ([]policy.ContainerTarget, []Change) {
	if r == (Room{}) {
		return wanted, nil
	}
	cut := slices.Clone(wanted)
	var changes []Change
	for k := range resources.Kind(resources.Kinds) {
		share := r.share(pod, least, wanted, k)
		if share == policy.Whole {
			continue
		}
		for i := range cut {
			from, requested := wanted[i].Requests.Get(k)
			if !requested && !wanted[i].Limits.Has(k) {
				continue
			}
			cut[i] = toward(least[i], cut[i], k, max(share, 0))
			switch to := cut[i].Requests.Value(k); {
			case share < 0:
				changes = append(changes, Change{wanted[i].Name, k, to, to})
			case to != from:
				changes = append(changes, Change{wanted[i].Name, k, from, to})
			}
		}
	}
	return cut, changes
}

// maxFraction returns the largest fraction of the way from minimum to desired that fits, or -1 if
// not even the minimum does.
func (r Room) share(pod policy.Pod, least, wanted []policy.ContainerTarget, k resources.Kind) resources.Amount {
	fits := func(share resources.Amount) bool {
		var requests, limits resources.Amount
		for i, c := range pod.Containers {
			request, most := max(c.Requests.Value(k), 0), max(c.Limits.Value(k), 0)
			gets := toward(least[i], wanted[i], k, share)
			if gets.Requests.Has(k) {
				request = gets.Requests.Value(k)
			}
			if gets.Limits.Has(k) {
				most = gets.Limits.Value(k)
			}
			requests, limits = requests.Add(request), limits.Add(most)
		}
		return within(requests, r.Requests, k) && within(limits, r.Limits, k)
	}
	if fits(policy.Whole) {
		return policy.Whole
	}
	if !fits(0) {
		return -1
	}
	low, high := resources.Amount(0), policy.Whole // low fits, high does not
	for high-low > 1 {
		if middle := (low + high) / 2; fits(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// maxPlacementBytes is the largest pod in bytes whose placement is decoded. A toleration of three
// bytes takes 72 in memory, and is compared with all nodes.
const mostPlaced = 128 << 10

// largestNode returns the room of the largest node available to a pod, if the requests exceed every
// such node. The placement of the pod is decoded only if some node is too small.
func largestNode(pod *corev1.Pod, in Namespace, requests resources.List) (room resources.List, tooLarge bool) {
	if in.Nodes.HoldAnywhere(requests) {
		return room, false
	}
	var placed struct {
		Spec nodefit.Placement `json:"spec"`
	}
	if len(in.Written) > mostPlaced || json.Unmarshal(in.Written, &placed) != nil {
		return room, false // unknown placement
	}
	owner, _ := target.Controller(pod.Namespace, pod.OwnerReferences)
	return in.Nodes.Largest(requests, &placed.Spec, func(namespace, name string) bool {
		return owner == target.Key{Namespace: namespace, Kind: "DaemonSet", Name: name}
	})
}

func within(sum resources.Amount, room resources.List, k resources.Kind) bool {
	most, bounded := room.Get(k)
	return !bounded || sum <= most
}

// interpolate returns the resources of a container after a fraction of the way from minimum to
// desired. Desired resources that do not exceed the minimum are returned unchanged. If only the
// limit exceeds it, only the limit is interpolated.
func toward(least, wanted policy.ContainerTarget, k resources.Kind, share resources.Amount) policy.ContainerTarget {
	low, ok := least.Requests.Get(k)
	if !ok {
		return wanted
	}
	if request := wanted.Requests.Value(k); request <= low {
		if wanted.Limits.Value(k) <= least.Limits.Value(k) {
			return wanted
		}
		least.Requests = least.Requests.With(k, request)
	}
	return policy.Partial(k, share, policy.Container{Requests: least.Requests, Limits: least.Limits}, wanted)
}
