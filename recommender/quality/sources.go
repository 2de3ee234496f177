package quality

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// CountSources counts, by source, where the resources of a pod's containers are
// found.
func CountSources(counter *prometheus.CounterVec, pod *corev1.Pod) {
	count := func(containers []corev1.Container, statuses []corev1.ContainerStatus, inStatus, inSpec string) {
		for i := range containers {
			source := inSpec
			for j := range statuses {
				if statuses[j].Name == containers[i].Name && statuses[j].Resources != nil {
					source = inStatus
				}
			}
			counter.WithLabelValues(source).Inc()
		}
	}
	count(pod.Spec.Containers, pod.Status.ContainerStatuses, "Pod.Status.ContainerStatuses", "Pod.Spec.Containers")
	count(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, "Pod.Status.InitContainerStatuses", "Pod.Spec.InitContainers")
}
