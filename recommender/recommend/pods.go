package recommend

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	listers "k8s.io/client-go/listers/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

// CPULimit returns the limit in millicores that is in force in a container of a
// pod, 0 if there is none; nil = there is no pod.
func CPULimit(pod *corev1.Pod, container string) resources.Amount {
	_, limits := sizes(pod, container)
	return limits.Value(resources.CPU)
}

func sizes(pod *corev1.Pod, container string) (requests, limits resources.List) {
	if pod == nil {
		return requests, limits
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == container {
			current := convert.Current(pod, pod.Spec.Containers[i])
			return convert.Resources(current.Requests), convert.Resources(current.Limits)
		}
	}
	return requests, limits
}

// PodLimits returns a Keeper.Limit that asks a cache of pods.
func PodLimits(pods listers.PodLister) func(usage.ContainerKey) resources.Amount {
	return func(c usage.ContainerKey) resources.Amount {
		pod, err := pods.Pods(c.Namespace).Get(c.Pod)
		if err != nil { // it is gone
			return 0
		}
		return CPULimit(pod, c.Container)
	}
}

// PodRequests returns a Keeper.Requests that asks a cache of pods: the requests of the first
// pod by name that runs the container.
func PodRequests(pods listers.PodLister) func(*model.VPA, string) resources.List {
	return func(v *model.VPA, container string) resources.List {
		for _, name := range v.PodNames() {
			pod, err := pods.Pods(v.Object.Namespace).Get(name)
			if err != nil || pod.Status.Phase != corev1.PodRunning {
				continue
			}
			if requests, _ := sizes(pod, container); !requests.Empty() {
				return requests
			}
		}
		return resources.List{}
	}
}

// InForce returns an Advisor.Current that asks a cache of pods: for each kind the
// median request of the pods that run the container, the lower one of two. One pod that
// was made by hand, or is the last one to change, does not decide for all. While none
// runs it is the target that was recommended last, which the next one gets.
func InForce(pods listers.PodLister) func(*model.VPA, string) resources.List {
	return func(v *model.VPA, container string) resources.List {
		var values [resources.Kinds][]resources.Amount
		runs := false
		for _, name := range v.PodNames() {
			pod, err := pods.Pods(v.Object.Namespace).Get(name)
			if err != nil || pod.Status.Phase != corev1.PodRunning {
				continue
			}
			runs = true
			requests, _ := sizes(pod, container)
			for k := range resources.Kind(resources.Kinds) {
				if request, has := requests.Get(k); has {
					values[k] = append(values[k], request)
				}
			}
		}
		var current resources.List
		for k := range resources.Kind(resources.Kinds) {
			if n := len(values[k]); n > 0 {
				slices.Sort(values[k])
				current = current.With(k, values[k][(n-1)/2])
			} else if t := v.Sketches[container]; !runs && t != nil {
				if target, _, known := t.Target(k); known {
					current = current.With(k, target)
				}
			}
		}
		return current
	}
}
