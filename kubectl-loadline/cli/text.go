package cli

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
)

// Timestamp formats a time in UTC.
func Timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// FormatResource formats a resource of a list, or returns "none".
func FormatResource(list resources.List, k resources.Kind) string {
	a, found := list.Get(k)
	if !found {
		return "none"
	}
	return FormatAmount(k, float64(a))
}

// FormatQuantity formats a resource of a list, or returns "-".
func FormatQuantity(list corev1.ResourceList, k resources.Kind) string {
	q, found := list[convert.ResourceName(k)]
	if !found {
		return "-"
	}
	return FormatAmount(k, float64(convert.Amount(k, q)))
}

// FormatAmount formats an amount of millicores or bytes.
func FormatAmount(k resources.Kind, a float64) string {
	if k == resources.CPU {
		return fmt.Sprintf("%.4gm", a)
	}
	const mib = 1 << 20
	return fmt.Sprintf("%.5g MiB", a/mib)
}

// PodName returns NAMESPACE/NAME of a pod.
func PodName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// VPAName returns the name of a VPA in findings and messages.
func VPAName(v *vpav1.VerticalPodAutoscaler) string { return "VPA " + v.Namespace + "/" + v.Name }

// Warnings returns problems as notes.
func Warnings(problems []string) (notes []string) {
	for _, problem := range problems {
		notes = append(notes, "! "+problem)
	}
	return notes
}
