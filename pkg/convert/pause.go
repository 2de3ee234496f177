package convert

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/disruption"
)

// PauseAnnotation is on a pod that came back without the change for which the one
// before was evicted. Its value says how often in a row that happened, and until
// when no pod of that owner is disrupted: "2 until 2026-01-02T12:00:00Z".
const PauseAnnotation = "loadline.dev/without-effect"

const pauseSeparator = " until "

// PauseText prints the value of PauseAnnotation.
func PauseText(p disruption.Backoff) string {
	return strconv.Itoa(p.Fruitless) + pauseSeparator + p.Until.UTC().Format(time.RFC3339)
}

// Pause reads PauseAnnotation. What cannot be understood counts as absent.
func Pause(pod *corev1.Pod) disruption.Backoff {
	times, until, ok := strings.Cut(pod.Annotations[PauseAnnotation], pauseSeparator)
	if !ok {
		return disruption.Backoff{}
	}
	n, err := strconv.Atoi(times)
	if err != nil || n < 1 {
		return disruption.Backoff{}
	}
	at, err := time.Parse(time.RFC3339, until)
	if err != nil {
		return disruption.Backoff{}
	}
	return disruption.Backoff{Fruitless: n, Until: at}
}
