package convert

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/disruption"
)

// Annotations of pods that must not be evicted.
const (
	safeToEvict      = "cluster-autoscaler.kubernetes.io/safe-to-evict"     // with "false"
	doNotDisrupt     = "karpenter.sh/do-not-disrupt"                        // unless "false"
	doNotEvict       = "karpenter.sh/do-not-evict"                          // its former name
	preferNoEviction = "descheduler.alpha.kubernetes.io/prefer-no-eviction" // unless "false"
)

// ProtectsFromEviction reports whether an annotation of a pod with this key can protect it from evictions.
func ProtectsFromEviction(key string) bool {
	switch key {
	case safeToEvict, doNotDisrupt, doNotEvict, preferNoEviction:
		return true
	}
	return false
}

// Protected returns why a pod must not be evicted, as far as the pod itself shows that; empty: it may be.
// An annotation with an unreadable value protects. Containers that run to completion lose their work, and
// the controllers of such pods count an evicted one as a failed one. Jobs that do not are an exception
// that the pod does not show.
func Protected(pod *corev1.Pod) disruption.Reason {
	if value, has := pod.Annotations[safeToEvict]; has && isFalse(value) {
		return disruption.ProtectedFromEviction
	}
	for _, key := range [...]string{doNotDisrupt, doNotEvict, preferNoEviction} {
		if value, has := pod.Annotations[key]; has && !isFalse(value) {
			return disruption.ProtectedFromEviction
		}
	}
	if policy := pod.Spec.RestartPolicy; policy != "" && policy != corev1.RestartPolicyAlways {
		return disruption.CountsAsFailure
	}
	return ""
}

func isFalse(value string) bool {
	b, err := strconv.ParseBool(strings.TrimSpace(value))
	return err == nil && !b
}
