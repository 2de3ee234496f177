package convert

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// SeparateMemoryLimit is the condition of a VPA that says that the memory limits of its pods
// do not follow their requests: the target is what is requested, the upper bound is what
// the limit protects.
const SeparateMemoryLimit vpav1.VerticalPodAutoscalerConditionType = "SeparateMemoryLimit"

// HasSeparateMemoryLimit reports whether that condition is true in the status of a VPA.
func HasSeparateMemoryLimit(status *vpav1.VerticalPodAutoscalerStatus) bool {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == SeparateMemoryLimit {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// DeclaredAnnotation is on a pod whose memory limits do not follow its requests. It says with
// which memory its containers were written, because the proportion of what they have now is
// another one: {"app":{"requests":{"memory":"100Mi"},"limits":{"memory":"150Mi"}}}.
const DeclaredAnnotation = "loadline.dev/declared-memory"

// maxDeclared is the maximum size of DeclaredAnnotation in bytes: every user with write access to
// the pod can set it.
const maxDeclared = 16 << 10

// Declared reads DeclaredAnnotation, by container. What cannot be understood counts as absent.
func Declared(annotations map[string]string) map[string]policy.Proportion {
	text := annotations[DeclaredAnnotation]
	var containers map[string]original
	if text == "" || len(text) > maxDeclared || json.Unmarshal([]byte(text), &containers) != nil {
		return nil
	}
	read := make(map[string]policy.Proportion, len(containers))
	for name, c := range containers {
		read[name] = policy.Proportion{Request: memory(c.Requests), Limit: memory(c.Limits)}
	}
	return read
}

func memory(n noted) resources.Amount {
	return Resources(corev1.ResourceList(n)).Value(resources.Memory)
}

// TighterDeclared returns which of two values of DeclaredAnnotation on one pod is believed: what
// it has now, unless a limit could be larger by that than by what it had before, or nothing
// is left of that.
func TighterDeclared(before, now string) string {
	if before == "" || before == now {
		return now
	}
	is := Declared(map[string]string{DeclaredAnnotation: now})
	for name, was := range Declared(map[string]string{DeclaredAnnotation: before}) {
		if p := is[name]; was.Known() && (!p.Known() || p.Looser(was)) {
			return before
		}
	}
	return now
}

// DeclaredText returns the value of DeclaredAnnotation for a pod with these annotations that gets
// something, and false if it need not be written: it says that, or no limit is separate.
func DeclaredText(annotations map[string]string, gets []policy.ContainerTarget) (text string, news bool) {
	known := Declared(annotations)
	for _, f := range gets {
		if !f.Declared.Known() || known[f.Name] == f.Declared {
			continue
		}
		if known == nil {
			known = map[string]policy.Proportion{}
		}
		known[f.Name], news = f.Declared, true
	}
	if !news {
		return "", false
	}
	if text = declaredText(known); len(text) > maxDeclared { // more than it could have of its own
		maps.DeleteFunc(known, func(name string, _ policy.Proportion) bool {
			return !slices.ContainsFunc(gets, func(f policy.ContainerTarget) bool { return f.Name == name })
		})
		text = declaredText(known)
	}
	return text, true
}

func declaredText(known map[string]policy.Proportion) string {
	containers := make(map[string]original, len(known))
	for name, p := range known {
		containers[name] = original{notedMemory(p.Request), notedMemory(p.Limit)}
	}
	raw, _ := json.Marshal(containers) // quantities never fail
	return string(raw)
}

func notedMemory(a resources.Amount) noted {
	return noted{corev1.ResourceMemory: Quantity(resources.Memory, a)}
}
