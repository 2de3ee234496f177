// Package convert makes core values of API objects, and API values of core ones, wherever more than one
// program needs that.
//
// Inwards: Amount and Resources read quantities, Pod and NewPod a pod's
// present resources, Recommendation the status of a VPA, Rules its policies,
// Ranges the LimitRanges of a namespace, Boosted and Observed the annotations
// of a pod.
//
// Outwards: Quantity prints an amount, Format prints a recommendation
// with the rounding a recommender is configured for, Written and Sizes give
// back the number format in which people wrote a value.
//
// It takes no decision and reads nothing but its arguments.
package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Pod reads the containers of a running pod with their present resources: what
// the status says is in force, else what the spec asks for; and with what is noted of the
// memory that they were declared with.
func Pod(pod *corev1.Pod) policy.Pod {
	current, declared := currentFinder(pod), Declared(pod.Annotations)
	p := corePod(pod, func(i int) corev1.ResourceRequirements { return current(&pod.Spec.Containers[i]) })
	for i := range p.Containers {
		p.Containers[i].Declared = declared[p.Containers[i].Name]
	}
	return p
}

// NewPod reads the containers of a pod that is just being created, so that
// only its spec counts.
func NewPod(pod *corev1.Pod) policy.Pod {
	return corePod(pod, func(i int) corev1.ResourceRequirements { return pod.Spec.Containers[i].Resources })
}

// StaysBurstable reports whether only the ordinary containers make a pod Burstable, so that new sizes of them
// could make it Guaranteed.
func StaysBurstable(pod *corev1.Pod) bool {
	init := fixed(pod)
	if len(init) > 0 && policy.ClassOf(init) != policy.Guaranteed {
		return false
	}
	return policy.ClassOf(append(init, NewPod(pod).Containers...)) == policy.Burstable
}

func corePod(pod *corev1.Pod, sizes func(int) corev1.ResourceRequirements) policy.Pod {
	containers := make([]policy.Container, len(pod.Spec.Containers))
	for i := range containers {
		r := sizes(i)
		containers[i] = policy.Container{Name: pod.Spec.Containers[i].Name, Requests: Resources(r.Requests), Limits: Resources(r.Limits)}
	}
	return policy.Pod{Containers: containers, Unsized: unsized(pod), Rounded: rounded(pod)}
}

// rounded counts the memory requests or limits, whichever are more, with a fraction of a byte.
func rounded(pod *corev1.Pod) (r resources.List) {
	var requests, limits resources.Amount
	fraction := func(list corev1.ResourceList) resources.Amount {
		q, exists := list[corev1.ResourceMemory]
		if exists && q.MilliValue() != q.Value()*1000 {
			return 1
		}
		return 0
	}
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			requests, limits = requests+fraction(containers[i].Resources.Requests), limits+fraction(containers[i].Resources.Limits)
		}
	}
	if count := max(requests, limits); count > 0 {
		r = r.With(resources.Memory, count)
	}
	return r
}

// unsized returns the sizes of the init containers, summed as LimitRanges of pods sum them.
func unsized(pod *corev1.Pod) (u policy.Unsized) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sizes := policy.Sizes{Requests: Resources(c.Resources.Requests), Limits: Resources(c.Resources.Limits)}
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			u.Sidecars = u.Sidecars.Plus(sizes)
			sizes = policy.Sizes{}
		}
		u.Starting = u.Starting.Larger(u.Sidecars.Plus(sizes))
	}
	return u
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

// HasResources reports whether the container has a resources object. A patch that
// adds one must not replace it: it may hold nothing but claims on devices.
func HasResources(c *corev1.Container) bool {
	return c.Resources.Requests != nil || c.Resources.Limits != nil || c.Resources.Claims != nil
}

// SizedAsWhole reports whether a pod has CPU or memory of its own besides that of
// its containers. The API server refuses containers that sum up to more, so
// their sizes must not be changed alone.
func SizedAsWhole(pod *corev1.Pod) bool {
	r := pod.Spec.Resources
	return r != nil && (!Resources(r.Requests).Empty() || !Resources(r.Limits).Empty())
}

// HasSized reports whether a VPA has given the pod sizes, when it was created or since,
// so that its template may ask for others.
func HasSized(pod *corev1.Pod) bool {
	return pod.Annotations[UpdatesAnnotation] != "" || pod.Annotations[ResizedAnnotation] != ""
}

// NodeReady reports whether a node says that it is ready.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
