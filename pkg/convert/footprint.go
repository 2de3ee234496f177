package convert

import (
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/resources"
)

// Footprint returns the node resources that a pod reserves. Each container counts with the larger
// of its requests and its granted resources while a resize is in progress, or with the granted
// resources if the resize is infeasible. Init containers count if one of them needs more. Pod
// overhead is added. Pod-level requests override the sum of the containers.
func Footprint(pod *corev1.Pod) resources.List {
	running, starting := Footprints(pod)
	return running.Larger(starting)
}

// Footprints returns the node resources for the containers that run at the same time, and the
// minimum for the init containers that run before them. The larger one counts, for each resource.
func Footprints(pod *corev1.Pod) (running, starting resources.List) {
	if ResizeInfeasible(pod) { // as the scheduler counts it
		return footprints(pod, granted, podLevelGranted(pod))
	}
	return footprints(pod, requestedOrGranted, podLevelRequests(pod).Larger(podLevelGranted(pod)))
}

func footprints(
	pod *corev1.Pod, containerRequests func([]corev1.ContainerStatus, *corev1.Container) resources.List, podLevel resources.List,
) (running, starting resources.List) {
	var sum, sidecars resources.List
	for i := range pod.Spec.Containers {
		sum = sum.Plus(containerRequests(pod.Status.ContainerStatuses, &pod.Spec.Containers[i]))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		takes := containerRequests(pod.Status.InitContainerStatuses, c)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = sidecars.Plus(takes)
			takes = resources.List{}
		}
		starting = starting.Larger(sidecars.Plus(takes))
	}
	running = sum.Plus(sidecars)
	requests := podLevelRequests(pod)
	for k := range resources.Kind(resources.Kinds) {
		if requests.Has(k) {
			running, starting = running.With(k, podLevel.Value(k)), starting.Without(k)
		}
	}
	overhead := Resources(pod.Spec.Overhead)
	return running.Plus(overhead), starting.Plus(overhead)
}

func podLevelRequests(pod *corev1.Pod) resources.List {
	if pod.Spec.Resources == nil {
		return resources.List{}
	}
	return Resources(pod.Spec.Resources.Requests)
}

// podLevelGranted falls back to the spec until the kubelet reports the status.
func podLevelGranted(pod *corev1.Pod) resources.List {
	if pod.Status.Resources == nil {
		return podLevelRequests(pod)
	}
	return Resources(pod.Status.Resources.Requests).Larger(Resources(pod.Status.AllocatedResources))
}

func requestedOrGranted(statuses []corev1.ContainerStatus, c *corev1.Container) resources.List {
	return Resources(c.Resources.Requests).Larger(granted(statuses, c))
}

func granted(statuses []corev1.ContainerStatus, c *corev1.Container) resources.List {
	return Resources(inForce(statuses, c).Requests)
}
