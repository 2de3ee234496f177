package convert

import corev1 "k8s.io/api/core/v1"

// ReasonEvicted is the reason of a pod's failure, and of its event, after the kubelet has evicted it.
const ReasonEvicted = "Evicted"

// EvictedByKubelet reports whether the kubelet evicted a pod.
func EvictedByKubelet(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == ReasonEvicted
}
