package convert

import corev1 "k8s.io/api/core/v1"

// ReasonEvicted is the reason in the status of a pod that the kubelet evicted, and of its event.
const ReasonEvicted = "Evicted"

// EvictedByKubelet reports whether a pod has failed because the kubelet evicted it.
func EvictedByKubelet(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == ReasonEvicted
}
