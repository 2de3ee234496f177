package convert

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/disruption"
)

// RestartAnnotation is on a pod that was resized so that a container restarts. Its
// value says when, and how often the containers had been restarted before:
// "2026-01-02T12:00:00Z after 3". The next pod of the workload waits until this one is
// ready again, also if another process goes on.
const RestartAnnotation = "loadline.dev/restart"

const restartSeparator = " after "

// RestartText prints the value of RestartAnnotation.
func RestartText(r disruption.Restart) string {
	return r.At.UTC().Format(time.RFC3339) + restartSeparator + strconv.Itoa(r.Count)
}

// Restart reads RestartAnnotation. What cannot be understood counts as absent.
func Restart(pod *corev1.Pod) disruption.Restart {
	at, count, ok := strings.Cut(pod.Annotations[RestartAnnotation], restartSeparator)
	if !ok {
		return disruption.Restart{}
	}
	when, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return disruption.Restart{}
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 {
		return disruption.Restart{}
	}
	return disruption.Restart{At: when, Count: n}
}

// Restarts is how often the ordinary containers of a pod were restarted, in all.
func Restarts(pod *corev1.Pod) (n int) {
	for i := range pod.Status.ContainerStatuses {
		n += int(pod.Status.ContainerStatuses[i].RestartCount)
	}
	return n
}
