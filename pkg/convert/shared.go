package convert

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// SharedAnnotation is on a pod that was given its share of what its node has left. Its value says
// which kinds it shares, when it was made smaller, and how often its containers had been restarted
// by then: "cpu at 2026-01-02T12:00:00Z after 3"; "cpu" alone: it never was. With " reverted" it got
// its peak back then, because its share did harm. It is written before the pod is resized, and goes when the pod has its
// peak again.
const SharedAnnotation = "loadline.dev/shared"

const (
	sharedAt       = " at "
	sharedReverted = " reverted"
	// longestShared is how many bytes of the value are read: anybody who may change the pod may
	// write it.
	longestShared = 100
)

// SharedText prints the value of SharedAnnotation.
func SharedText(m sharing.Mark) string {
	var kinds []string
	for k := range resources.Kind(resources.Kinds) {
		if m.Kinds[k] {
			kinds = append(kinds, k.String())
		}
	}
	if m.At.IsZero() {
		return strings.Join(kinds, ",")
	}
	text := strings.Join(kinds, ",") + sharedAt + m.At.UTC().Format(time.RFC3339) + restartSeparator + strconv.Itoa(m.Restarts)
	if m.Reverted {
		text += sharedReverted
	}
	return text
}

// Shared reads SharedAnnotation; false: the pod has none. One that cannot be understood says that
// the pod shares everything, and nothing else: the pod then gets its peak before the mark goes.
func Shared(pod *corev1.Pod) (m sharing.Mark, marked bool) {
	text, marked := pod.Annotations[SharedAnnotation]
	if !marked {
		return m, false
	}
	all := sharing.Mark{Kinds: [resources.Kinds]bool{true, true}}
	if len(text) > longestShared {
		return all, true
	}
	rest, reverted := strings.CutSuffix(text, sharedReverted)
	kinds, rest, isAt := strings.Cut(rest, sharedAt)
	at, count, counts := strings.Cut(rest, restartSeparator)
	if isAt || reverted {
		when, err := time.Parse(time.RFC3339, at)
		n, bad := strconv.Atoi(count)
		if !isAt || !counts || err != nil || bad != nil || n < 0 {
			return all, true
		}
		m = sharing.Mark{At: when, Restarts: n, Reverted: reverted}
	}
	for name := range strings.SplitSeq(kinds, ",") {
		known := false
		for k := range resources.Kind(resources.Kinds) {
			if name == k.String() {
				m.Kinds[k], known = true, true
			}
		}
		if !known {
			return all, true
		}
	}
	return m, true
}
