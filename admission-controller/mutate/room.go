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

// Room is the remaining quota for the containers of one pod. An absent kind is unbounded.
type Room struct {
	Requests, Limits resources.List
}

// RoomFor returns the remaining quota for the ordinary containers, after sidecars and overhead.
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
	return room.subtractExtras(pod)
}

func (r Room) subtractExtras(pod *corev1.Pod) Room {
	forEachExtra(pod, func(requests, limits corev1.ResourceList) { r = r.subtract(requests, limits) })
	return r
}

func forEachExtra(pod *corev1.Pod, count func(requests, limits corev1.ResourceList)) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			count(c.Resources.Requests, c.Resources.Limits)
		}
	}
	count(pod.Spec.Overhead, pod.Spec.Overhead)
}

func tighter(known, left resources.List) resources.List {
	for k := range resources.Kind(resources.Kinds) {
		a, bounded := left.Get(k)
		if before, ok := known.Get(k); bounded && (!ok || a < before) {
			known = known.With(k, max(a, 0))
		}
	}
	return known
}

func (r Room) subtract(requests, limits corev1.ResourceList) Room {
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

// Cut returns the desired resources if they fit, else the largest fitting fraction of the way from
// minimum to desired, at least the minimum. Both have an entry for each container of the pod, in
// its order. Limits move with the requests.
func (r Room) Cut(pod policy.Pod, minimum, desired []policy.ContainerTarget) ([]policy.ContainerTarget, []Change) {
	if r == (Room{}) {
		return desired, nil
	}
	cut := slices.Clone(desired)
	var changes []Change
	for k := range resources.Kind(resources.Kinds) {
		fraction := r.maxFraction(pod, minimum, desired, k)
		if fraction == policy.FullFraction {
			continue
		}
		for i := range cut {
			from, requested := desired[i].Requests.Get(k)
			if !requested && !desired[i].Limits.Has(k) {
				continue
			}
			cut[i] = interpolate(minimum[i], cut[i], k, max(fraction, 0))
			switch to := cut[i].Requests.Value(k); {
			case fraction < 0:
				changes = append(changes, Change{desired[i].Name, k, to, to})
			case to != from:
				changes = append(changes, Change{desired[i].Name, k, from, to})
			}
		}
	}
	return cut, changes
}

// maxFraction returns the largest fraction that fits, or -1 if not even the minimum does.
func (r Room) maxFraction(pod policy.Pod, minimum, desired []policy.ContainerTarget, k resources.Kind) resources.Amount {
	fits := func(share resources.Amount) bool {
		var requests, limits resources.Amount
		for i, c := range pod.Containers {
			request, most := max(c.Requests.Value(k), 0), max(c.Limits.Value(k), 0)
			gets := interpolate(minimum[i], desired[i], k, share)
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
	if fits(policy.FullFraction) {
		return policy.FullFraction
	}
	if !fits(0) {
		return -1
	}
	low, high := resources.Amount(0), policy.FullFraction // low fits, high does not
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
const maxPlacementBytes = 128 << 10

// largestNode returns the room of the largest node available to a pod, if the requests exceed every
// such node. The placement of the pod is decoded only if some node is too small.
func largestNode(pod *corev1.Pod, in Constraints, requests resources.List) (room resources.List, tooLarge bool) {
	if in.Nodes.FitsEverywhere(requests) {
		return room, false
	}
	var placed struct {
		Spec nodefit.Placement `json:"spec"`
	}
	if len(in.Written) > maxPlacementBytes || json.Unmarshal(in.Written, &placed) != nil {
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

// interpolate returns the resources at a fraction of the way from minimum to desired. Desired
// values up to the minimum stay. If only the limit exceeds it, only the limit is interpolated.
func interpolate(minimum, desired policy.ContainerTarget, k resources.Kind, fraction resources.Amount) policy.ContainerTarget {
	low, ok := minimum.Requests.Get(k)
	if !ok {
		return desired
	}
	if request := desired.Requests.Value(k); request <= low {
		if desired.Limits.Value(k) <= minimum.Limits.Value(k) {
			return desired
		}
		minimum.Requests = minimum.Requests.With(k, request)
	}
	return policy.Interpolate(k, fraction, policy.Container{Requests: minimum.Requests, Limits: minimum.Limits}, desired)
}
