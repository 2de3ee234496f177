package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Annotations of a pod whose change is observed. They are written before it is resized, so
// that whatever happens to the updater, the next one can judge the change and take it back.
const (
	// ResizedAtAnnotation says since when: "2026-01-02T12:00:00Z", or with " deferred" as long as
	// the node has not begun.
	ResizedAtAnnotation = "loadline.dev/resized-at"
	// OriginalAnnotation has for each changed container what it had and what it gets.
	OriginalAnnotation = "loadline.dev/original"
)

// NoteAnnotations are all annotations that note a change.
var NoteAnnotations = []string{ResizedAtAnnotation, OriginalAnnotation}

// ForeignAnnotations are those that no new pod can have of its own: they say what became of another one.
var ForeignAnnotations = []string{ResizedAtAnnotation, OriginalAnnotation, DeclaredAnnotation, SharedAnnotation}

const deferredSuffix = " deferred"

// MaxOriginal is the maximum size of OriginalAnnotation in bytes. It bounds what the updater parses, because every
// user with write access to the pod can set the annotation.
const MaxOriginal = 16 << 10

// originalSizing is one container in OriginalAnnotation.
type originalSizing struct {
	Requests noted      `json:"requests"`
	Limits   noted      `json:"limits"`
	Target   targetSize `json:"target"`
	Restarts int        `json:"restarts"`
	Ready    bool       `json:"ready"` // the pod
	// Generation of the pod's spec before the change.
	Generation int64 `json:"generation,omitempty"`
	// Harm that is being taken back.
	Harm rollout.Harm `json:"harm,omitempty"`
}

type targetSize struct {
	Requests noted `json:"requests"`
	Limits   noted `json:"limits"`
}

// ChangeNotes returns the annotations that note a change on its pod.
func ChangeNotes(c rollout.Change) map[string]string {
	at, containers := c.At.UTC().Format(time.RFC3339), make(map[string]originalSizing, len(c.Containers))
	if c.Pending {
		at += deferredSuffix
	}
	for _, one := range c.Containers {
		containers[one.From.Name] = originalSizing{
			Requests: notedOf(one.From.Requests), Limits: notedOf(one.From.Limits),
			Target:   targetSize{notedOf(one.To.Requests), notedOf(one.To.Limits)},
			Restarts: one.Restarts, Ready: c.Ready, Generation: c.Generation, Harm: c.Harm,
		}
	}
	text, _ := json.Marshal(containers) // quantities never fail
	return map[string]string{ResizedAtAnnotation: at, OriginalAnnotation: string(text)}
}

// Recordable reports whether the annotations of a change, with its harm added, stay within MaxOriginal.
func Recordable(c rollout.Change) bool {
	c.Harm = rollout.OOMKill // the longest one that is noted on pods
	return len(ChangeNotes(c)[OriginalAnnotation]) <= MaxOriginal
}

func notedOf(l resources.List) noted {
	list := noted{}
	for name, q := range (Format{}).List(l) {
		list[name] = q
	}
	return list
}

// HasNotedChange reports whether a change is noted on a pod, readable or not.
func HasNotedChange(pod *corev1.Pod) bool {
	_, there := pod.Annotations[ResizedAtAnnotation]
	return there
}

// NotedChange returns the change that is noted on a pod. It is an error if the annotations
// cannot be read, or name a container that the pod does not have.
func NotedChange(pod *corev1.Pod) (c rollout.Change, err error) {
	at, waits := strings.CutSuffix(pod.Annotations[ResizedAtAnnotation], deferredSuffix)
	if len(at) > len(time.RFC3339) {
		return c, fmt.Errorf("annotation %s: must be a time such as 2026-01-02T12:00:00Z", ResizedAtAnnotation)
	}
	if c.At, err = time.Parse(time.RFC3339, at); err != nil {
		return c, fmt.Errorf("annotation %s: %w", ResizedAtAnnotation, err)
	}
	c.Pending = waits
	text := pod.Annotations[OriginalAnnotation]
	if len(text) > MaxOriginal {
		return c, fmt.Errorf("annotation %s has more than %d bytes", OriginalAnnotation, MaxOriginal)
	}
	var containers map[string]originalSizing
	if err := json.Unmarshal([]byte(text), &containers); err != nil {
		return c, fmt.Errorf("annotation %s: %w", OriginalAnnotation, err)
	}
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		one, changed := containers[name]
		if !changed {
			continue
		}
		c.Ready, c.Generation = c.Ready || one.Ready, max(c.Generation, one.Generation)
		if one.Harm.Reverts() {
			c.Harm = one.Harm
		}
		c.Containers = append(c.Containers, rollout.Sizing{
			From:     policy.Container{Name: name, Requests: Resources(corev1.ResourceList(one.Requests)), Limits: Resources(corev1.ResourceList(one.Limits))},
			To:       policy.Container{Name: name, Requests: Resources(corev1.ResourceList(one.Target.Requests)), Limits: Resources(corev1.ResourceList(one.Target.Limits))},
			Restarts: max(one.Restarts, 0),
		})
	}
	if len(c.Containers) != len(containers) || len(containers) == 0 {
		return c, fmt.Errorf("annotation %s does not name containers of the pod", OriginalAnnotation)
	}
	slices.SortFunc(c.Containers, func(a, b rollout.Sizing) int { return strings.Compare(a.From.Name, b.From.Name) })
	return c, nil
}

// SharedAnnotation is on a pod that was given its share of what its node has left. Its value says which kinds it
// shares, when it was made smaller, and how often its containers had been restarted by then: "cpu at
// 2026-01-02T12:00:00Z after 3"; "cpu" alone: it never was. With " reverted" it got its peak back then, because its
// share did harm. It is written before the pod is resized, and goes when the pod has its peak again.
const SharedAnnotation = "loadline.dev/shared"

const (
	sharedAt       = " at "
	sharedReverted = " reverted"
	// longestShared is how many bytes of the value are read: anybody who may change the pod may write it.
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
