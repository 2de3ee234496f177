package convert

import corev1 "k8s.io/api/core/v1"

// Unaccepted reports whether the kubelet of a pod's node has not said yet that it takes the pod. Who
// binds a pod decides its node, whether that has room or not.
func Unaccepted(pod *corev1.Pod) bool {
	return pod.Status.StartTime == nil && pod.Status.Phase == corev1.PodPending
}
