package convert

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/reason"
)

const (
	safeToEvict      = "cluster-autoscaler.kubernetes.io/safe-to-evict"     // if "false"
	doNotDisrupt     = "karpenter.sh/do-not-disrupt"                        // unless "false"
	doNotEvict       = "karpenter.sh/do-not-evict"                          // its former name
	preferNoEviction = "descheduler.alpha.kubernetes.io/prefer-no-eviction" // unless "false"
)

// ProtectsFromEviction reports whether key is an annotation that can protect a pod from evictions.
func ProtectsFromEviction(key string) bool {
	switch key {
	case safeToEvict, doNotDisrupt, doNotEvict, preferNoEviction:
		return true
	}
	return false
}

// Protected returns the reason why a pod must not be evicted, as far as the pod shows it, or an
// empty string. An annotation with an unreadable value protects. Pods that run to completion lose
// their work, and their controllers count an eviction as a failure. Jobs with a podFailurePolicy
// that ignores evictions are an exception, but only the Job shows it.
func Protected(pod *corev1.Pod) reason.Reason {
	if value, has := pod.Annotations[safeToEvict]; has && isFalse(value) {
		return reason.ProtectedFromEviction
	}
	for _, key := range [...]string{doNotDisrupt, doNotEvict, preferNoEviction} {
		if value, has := pod.Annotations[key]; has && !isFalse(value) {
			return reason.ProtectedFromEviction
		}
	}
	if policy := pod.Spec.RestartPolicy; policy != "" && policy != corev1.RestartPolicyAlways {
		return reason.CountsAsFailure
	}
	return ""
}

func isFalse(value string) bool {
	b, err := strconv.ParseBool(strings.TrimSpace(value))
	return err == nil && !b
}
