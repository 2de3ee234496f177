package convert

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"loadline.dev/loadline/pkg/core/policy"
)

// Annotations of a pod that the VPA components exchange.
const (
	// UpdatesAnnotation tells people what the webhook changed.
	UpdatesAnnotation = "vpaUpdates"
	// ObservedAnnotation lists the containers that the webhook saw; containers
	// that another webhook added later are missing in it.
	ObservedAnnotation = "vpaObservedContainers"
	// ResizedAnnotation marks a pod that was resized in place.
	ResizedAnnotation = "vpaInPlaceUpdated"
	// BoostAnnotationPrefix, followed by a container name, marks a boosted
	// container and holds its original resources.
	BoostAnnotationPrefix = "vpaCpuStartupBoost/"
)

const observedSeparator = ", "

// Pod reads the containers of a running pod with their present resources: what
// the status says is in force, else what the spec asks for.
func Pod(pod *corev1.Pod) policy.Pod {
	current := currentFinder(pod)
	return corePod(pod, func(i int) corev1.ResourceRequirements { return current(&pod.Spec.Containers[i]) })
}

// NewPod reads the containers of a pod that is just being created, so that
// only its spec counts.
func NewPod(pod *corev1.Pod) policy.Pod {
	return corePod(pod, func(i int) corev1.ResourceRequirements { return pod.Spec.Containers[i].Resources })
}

func corePod(pod *corev1.Pod, resources func(int) corev1.ResourceRequirements) policy.Pod {
	containers := make([]policy.Container, len(pod.Spec.Containers))
	for i := range containers {
		r := resources(i)
		containers[i] = policy.Container{Name: pod.Spec.Containers[i].Name, Requests: Resources(r.Requests), Limits: Resources(r.Limits)}
	}
	return policy.Pod{Containers: containers}
}

// Current returns the resources of a container that are in force: those of
// its status when it has them, even if empty, else those of its spec.
func Current(pod *corev1.Pod, container corev1.Container) corev1.ResourceRequirements {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == container.Name && s.Resources != nil {
			return *s.Resources
		}
	}
	return container.Resources
}

// currentFinder returns Current of one pod, for many containers.
func currentFinder(pod *corev1.Pod) func(*corev1.Container) corev1.ResourceRequirements {
	status := byName(pod.Status.ContainerStatuses, func(s *corev1.ContainerStatus) string { return s.Name })
	return func(container *corev1.Container) corev1.ResourceRequirements {
		if s := status.find(container.Name); s != nil && s.Resources != nil {
			return *s.Resources
		}
		return container.Resources
	}
}

// HasResources tells whether the container has a resources object. A patch that
// adds one must not replace it: it may hold nothing but claims on devices.
func HasResources(c *corev1.Container) bool {
	return c.Resources.Requests != nil || c.Resources.Limits != nil || c.Resources.Claims != nil
}

// SizedAsWhole tells whether a pod has CPU or memory of its own besides that of
// its containers. The API server refuses containers that sum up to more, so
// their sizes must not be changed alone.
func SizedAsWhole(pod *corev1.Pod) bool {
	r := pod.Spec.Resources
	return r != nil && (!Resources(r.Requests).Empty() || !Resources(r.Limits).Empty())
}

// HasSized tells whether a VPA has given the pod sizes, when it was created or since,
// so that its template may ask for others.
func HasSized(pod *corev1.Pod) bool {
	return pod.Annotations[UpdatesAnnotation] != "" || pod.Annotations[ResizedAnnotation] != ""
}

// Observation prints the value of ObservedAnnotation for a pod.
func Observation(pod *corev1.Pod) string {
	names := make([]string, len(pod.Spec.Containers))
	for i, c := range pod.Spec.Containers {
		names[i] = c.Name
	}
	return strings.Join(names, observedSeparator)
}

// Observed returns the containers that the webhook saw when the pod was
// created. It is false when the annotation is missing or not a list of
// container names; an empty value is an empty list.
func Observed(pod *corev1.Pod) (containers []string, ok bool) {
	value, ok := pod.Annotations[ObservedAnnotation]
	if !ok || value == "" {
		return nil, ok
	}
	containers = strings.Split(value, observedSeparator)
	if slices.ContainsFunc(containers, func(name string) bool { return len(validation.IsDNS1123Label(name)) > 0 }) {
		return nil, false
	}
	return containers, true
}
