package convert

import (
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/resources"
)

// Footprint returns what a pod takes of its node: what its containers request, or still have while a resize is under
// way, whichever is more, but what they have where the kubelet said that the resize can never be done; the largest of
// its init containers if that is more; and what the pod costs as such. Requests of the whole pod go first.
func Footprint(pod *corev1.Pod) resources.List {
	running, starting := Footprints(pod)
	return running.Larger(starting)
}

// Footprints returns what a pod takes of its node for the containers that run beside each other, and what it takes at
// least for its init containers, which run before. The larger one counts, of each kind.
func Footprints(pod *corev1.Pod) (running, starting resources.List) {
	if ResizeInfeasible(pod) { // as the scheduler counts it
		return footprints(pod, granted, wholeGranted(pod))
	}
	return footprints(pod, requested, wholeRequests(pod).Larger(wholeGranted(pod)))
}

// footprints computes Footprints from the requests that counts returns for a container, and from the pod-level
// requests in whole.
func footprints(
	pod *corev1.Pod, counts func([]corev1.ContainerStatus, *corev1.Container) resources.List, whole resources.List,
) (running, starting resources.List) {
	var sum, sidecars resources.List
	for i := range pod.Spec.Containers {
		sum = sum.Plus(counts(pod.Status.ContainerStatuses, &pod.Spec.Containers[i]))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		takes := counts(pod.Status.InitContainerStatuses, c)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = sidecars.Plus(takes)
			takes = resources.List{}
		}
		starting = starting.Larger(sidecars.Plus(takes))
	}
	running = sum.Plus(sidecars)
	requests := wholeRequests(pod)
	for k := range resources.Kind(resources.Kinds) {
		if requests.Has(k) {
			running, starting = running.With(k, whole.Value(k)), starting.Without(k)
		}
	}
	overhead := Resources(pod.Spec.Overhead)
	return running.Plus(overhead), starting.Plus(overhead)
}

// wholeRequests returns the pod-level requests in the spec.
func wholeRequests(pod *corev1.Pod) resources.List {
	if pod.Spec.Resources == nil {
		return resources.List{}
	}
	return Resources(pod.Spec.Resources.Requests)
}

// wholeGranted returns the pod-level requests that the node reserves, or those of the spec as long as the kubelet
// has not reported any.
func wholeGranted(pod *corev1.Pod) resources.List {
	if pod.Status.Resources == nil {
		return wholeRequests(pod)
	}
	return Resources(pod.Status.Resources.Requests).Larger(Resources(pod.Status.AllocatedResources))
}

// requested is what a container asks for or still has.
func requested(statuses []corev1.ContainerStatus, c *corev1.Container) resources.List {
	return Resources(c.Resources.Requests).Larger(granted(statuses, c))
}

// granted is what a container has, or asks for where that is not known.
func granted(statuses []corev1.ContainerStatus, c *corev1.Container) resources.List {
	return Resources(inForce(statuses, c).Requests)
}
