package convert

import (
	"encoding/json"
	"fmt"
	"maps"
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

// They are written before the resize, so that a restarted updater can judge and revert the change.
const (
	// ResizedAtAnnotation holds the time of the change: "2026-01-02T12:00:00Z". The suffix "
	// deferred" is present until the node begins the resize.
	ResizedAtAnnotation = "loadline.dev/resized-at"
	// OriginalAnnotation holds the previous and the new resources of each changed container.
	OriginalAnnotation = "loadline.dev/original"
)

// ChangeAnnotations are all annotations of the note of a change.
var ChangeAnnotations = []string{ResizedAtAnnotation, OriginalAnnotation}

// RunningPodAnnotations record the history of a running pod. A new pod with one of them copied it
// from another pod.
var RunningPodAnnotations = []string{ResizedAtAnnotation, OriginalAnnotation, DeclaredAnnotation, SharedAnnotation}

const deferredSuffix = " deferred"

// MaxOriginal is the maximum size of OriginalAnnotation in bytes. Users can set the annotation.
const MaxOriginal = 16 << 10

// storedChange is one container in OriginalAnnotation.
type storedChange struct {
	Requests   storedResources `json:"requests"`
	Limits     storedResources `json:"limits"`
	Target     storedTarget    `json:"target"`
	Restarts   int             `json:"restarts"`
	Ready      bool            `json:"ready"` // whether the pod was ready
	Generation int64           `json:"generation,omitempty"`
	// Harm that caused a revert in progress.
	Harm rollout.Harm `json:"harm,omitempty"`
}

type storedTarget struct {
	Requests storedResources `json:"requests"`
	Limits   storedResources `json:"limits"`
}

// FormatChange returns the annotations that note a change on its pod.
func FormatChange(c rollout.Change) map[string]string {
	at, containers := c.At.UTC().Format(time.RFC3339), make(map[string]storedChange, len(c.Containers))
	if c.Pending {
		at += deferredSuffix
	}
	for _, one := range c.Containers {
		containers[one.From.Name] = storedChange{
			Requests: storeList(one.From.Requests), Limits: storeList(one.From.Limits),
			Target:   storedTarget{storeList(one.To.Requests), storeList(one.To.Limits)},
			Restarts: one.Restarts, Ready: c.Ready, Generation: c.Generation, Harm: c.Harm,
		}
	}
	text, _ := json.Marshal(containers) // quantities never fail
	return map[string]string{ResizedAtAnnotation: at, OriginalAnnotation: string(text)}
}

// FitsAnnotation reports whether the annotations of a change, harm included, fit MaxOriginal.
func FitsAnnotation(c rollout.Change) bool {
	c.Harm = rollout.OOMKill // the longest harm that pods record
	return len(FormatChange(c)[OriginalAnnotation]) <= MaxOriginal
}

func storeList(l resources.List) storedResources {
	list := storedResources{}
	maps.Copy(list, Format{}.List(l))
	return list
}

// HasNotedChange reports whether a pod has the note of a change, readable or not.
func HasNotedChange(pod *corev1.Pod) bool {
	_, there := pod.Annotations[ResizedAtAnnotation]
	return there
}

// ParseChange returns the noted change. Invalid annotations and unknown containers are errors.
func ParseChange(pod *corev1.Pod) (c rollout.Change, err error) {
	at, deferred := strings.CutSuffix(pod.Annotations[ResizedAtAnnotation], deferredSuffix)
	if len(at) > len(time.RFC3339) {
		return c, fmt.Errorf("annotation %s: must be a time such as 2026-01-02T12:00:00Z", ResizedAtAnnotation)
	}
	if c.At, err = time.Parse(time.RFC3339, at); err != nil {
		return c, fmt.Errorf("annotation %s: %w", ResizedAtAnnotation, err)
	}
	c.Pending = deferred
	text := pod.Annotations[OriginalAnnotation]
	if len(text) > MaxOriginal {
		return c, fmt.Errorf("annotation %s has more than %d bytes", OriginalAnnotation, MaxOriginal)
	}
	var containers map[string]storedChange
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
		if one.Harm.TriggersRevert() {
			c.Harm = one.Harm
		}
		c.Containers = append(c.Containers, rollout.ContainerChange{
			From:     policy.Container{Name: name, Requests: Resources(corev1.ResourceList(one.Requests)), Limits: Resources(corev1.ResourceList(one.Limits))},
			To:       policy.Container{Name: name, Requests: Resources(corev1.ResourceList(one.Target.Requests)), Limits: Resources(corev1.ResourceList(one.Target.Limits))},
			Restarts: max(one.Restarts, 0),
		})
	}
	if len(c.Containers) != len(containers) || len(containers) == 0 {
		return c, fmt.Errorf("annotation %s does not name containers of the pod", OriginalAnnotation)
	}
	slices.SortFunc(c.Containers, func(a, b rollout.ContainerChange) int { return strings.Compare(a.From.Name, b.From.Name) })
	return c, nil
}

// SharedAnnotation marks a pod that got its share of the node headroom. Its value holds the shared
// resources, and the time and restart count of the shrink: "cpu at 2026-01-02T12:00:00Z after 3". A
// pod that never shrank has "cpu" alone. The suffix " reverted" means that the share caused harm
// and the pod got its peak back. The annotation is written before the resize, and removed when the
// pod has its peak again.
const SharedAnnotation = "loadline.dev/shared"

const (
	sharedAt       = " at "
	sharedReverted = " reverted"
	// in bytes
	maxShared = 100
)

// FormatShared returns the value of SharedAnnotation.
func FormatShared(m sharing.Mark) string {
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

// ParseShared reads SharedAnnotation. It returns false if absent. An invalid value means all
// resources, so that the pod gets its peak before the annotation is removed.
func ParseShared(pod *corev1.Pod) (m sharing.Mark, marked bool) {
	text, marked := pod.Annotations[SharedAnnotation]
	if !marked {
		return m, false
	}
	all := sharing.Mark{Kinds: [resources.Kinds]bool{true, true}}
	if len(text) > maxShared {
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
