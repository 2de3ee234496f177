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
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
)

const (
	// UpdatesAnnotation lists the changes of the webhook for users.
	UpdatesAnnotation = "vpaUpdates"
	// ObservedAnnotation lists the containers that the webhook saw, without ones added later.
	ObservedAnnotation = "vpaObservedContainers"
	// ResizedAnnotation marks a pod that was resized in place.
	ResizedAnnotation = "vpaInPlaceUpdated"
	// BoostAnnotationPrefix + container name holds the original resources of a boosted container.
	BoostAnnotationPrefix = "vpaCpuStartupBoost/"
)

const observedSeparator = ", "

// AnnotationLimit returns the maximum size of an annotation value in bytes, because every user with
// write access can set it. It is 0 for annotations that the programs do not read.
func AnnotationLimit(key string) int {
	if fleet.IsAnnotation(key) || ProtectsFromEviction(key) {
		return 63 // all valid values are shorter
	}
	switch key {
	case OriginalAnnotation:
		return MaxOriginal
	case DeclaredAnnotation:
		return maxDeclared
	case ObservedAnnotation:
		return 20 << 10 // names of 300 containers
	case SharedAnnotation, ResizedAtAnnotation, RestartAnnotation, BackoffAnnotation, UpdatesAnnotation, ResizedAnnotation:
		return 128
	case vpav1.UnreadableAnnotation, recipe.Annotation, fleet.UnselectedAnnotation:
		return 1 << 10
	}
	return 0
}

// FormatObserved returns the value of ObservedAnnotation for a pod.
func FormatObserved(pod *corev1.Pod) string {
	names := make([]string, len(pod.Spec.Containers))
	for i, c := range pod.Spec.Containers {
		names[i] = c.Name
	}
	return strings.Join(names, observedSeparator)
}

// ParseObserved returns the containers that the webhook saw at creation. It returns false if the
// annotation is missing or invalid. An empty value is an empty list.
func ParseObserved(pod *corev1.Pod) (containers []string, ok bool) {
	value, ok := pod.Annotations[ObservedAnnotation]
	if !ok || value == "" {
		return nil, ok
	}
	containers = strings.Split(value, observedSeparator)
	if slices.ContainsFunc(containers, func(name string) bool { return len(validation.IsDNS1123Label(name)) > 0 }) {
		return nil, false
	}
	return containers, true
}

type storedContainer struct {
	Requests storedResources `json:"requests"`
	Limits   storedResources `json:"limits"`
}

// storedResources are untrusted, like every annotation.
type storedResources corev1.ResourceList

// UnmarshalJSON checks each quantity before it parses it.
func (n *storedResources) UnmarshalJSON(raw []byte) error {
	var texts map[corev1.ResourceName]json.RawMessage
	if err := json.Unmarshal(raw, &texts); err != nil {
		return err
	}
	if texts == nil {
		return nil
	}
	*n = make(storedResources, len(texts))
	for name, text := range texts {
		if err := vpav1.CheckQuantity(string(text)); err != nil {
			return err
		}
		var q resource.Quantity
		if err := json.Unmarshal(text, &q); err != nil {
			return err
		}
		(*n)[name] = q
	}
	return nil
}

// BoostAnnotation returns the annotation of a boosted container with its original CPU and memory.
func BoostAnnotation(c corev1.Container) (key, value string) {
	text, _ := json.Marshal(storedContainer{storeResources(c.Resources.Requests), storeResources(c.Resources.Limits)}) // quantities never fail
	return BoostAnnotationPrefix + c.Name, string(text)
}

func storeResources(list corev1.ResourceList) storedResources {
	stored := storedResources{}
	for k := range resources.Kind(resources.Kinds) {
		if q, ok := list[ResourceName(k)]; ok {
			stored[ResourceName(k)] = q
		}
	}
	return stored
}

// BoostedContainers returns the original resources of boosted containers. An unreadable annotation
// causes an error and empty resources, so that the container still counts as boosted.
func BoostedContainers(pod *corev1.Pod) (map[string]corev1.ResourceRequirements, error) {
	var boosted map[string]corev1.ResourceRequirements
	var broken error
	for key, value := range pod.Annotations {
		name, ok := strings.CutPrefix(key, BoostAnnotationPrefix)
		if !ok {
			continue
		}
		var o storedContainer
		if err := json.Unmarshal([]byte(value), &o); err != nil {
			broken = fmt.Errorf("pod %s/%s: annotation %s: %w", pod.Namespace, pod.Name, key, err)
			o = storedContainer{}
		}
		if boosted == nil {
			boosted = map[string]corev1.ResourceRequirements{}
		}
		boosted[name] = corev1.ResourceRequirements{Requests: corev1.ResourceList(o.Requests), Limits: corev1.ResourceList(o.Limits)}
	}
	return boosted, broken
}

// IsBoosted reports whether a container of the pod carries a boost annotation.
func IsBoosted(pod *corev1.Pod) bool {
	for key := range pod.Annotations {
		if strings.HasPrefix(key, BoostAnnotationPrefix) {
			return true
		}
	}
	return false
}

// RestartAnnotation marks a pod with a resize that restarts a container. Its value holds the time
// and the earlier restart count of the containers: "2026-01-02T12:00:00Z after 3". The next pod of
// the workload waits until this one is ready again, even after a failover of the updater.
const RestartAnnotation = "loadline.dev/restart"

const restartSeparator = " after "

// FormatRestart returns the value of RestartAnnotation.
func FormatRestart(r disruption.Restart) string {
	return r.At.UTC().Format(time.RFC3339) + restartSeparator + strconv.Itoa(r.Count)
}

// ParseRestart reads RestartAnnotation. An invalid value counts as absent.
func ParseRestart(pod *corev1.Pod) disruption.Restart {
	at, count, _ := strings.Cut(pod.Annotations[RestartAnnotation], restartSeparator)
	when, err := time.Parse(time.RFC3339, at)
	n, bad := strconv.Atoi(count)
	if err != nil || bad != nil || n < 0 {
		return disruption.Restart{}
	}
	return disruption.Restart{At: when, Count: n}
}

// RestartCount sums the restarts of all regular containers of a pod.
func RestartCount(pod *corev1.Pod) (n int) {
	for i := range pod.Status.ContainerStatuses {
		n += int(pod.Status.ContainerStatuses[i].RestartCount)
	}
	return n
}

// Event annotations hold details of one pod, so that all pods of a workload share one message.
const (
	EventPodAnnotation   = "loadline.dev/pod"
	EventSizesAnnotation = "loadline.dev/sizes" // previous and new resources of each container
	EventErrorAnnotation = "loadline.dev/error"
)

// BackoffAnnotation marks a pod that still lacks the change for which its predecessor was evicted.
// Its value holds the number of consecutive fruitless evictions, and the time until which no pod of
// the owner is disrupted: "2 until 2026-01-02T12:00:00Z".
const BackoffAnnotation = "loadline.dev/without-effect"

const backoffSeparator = " until "

// FormatBackoff returns the value of BackoffAnnotation.
func FormatBackoff(p disruption.Backoff) string {
	return strconv.Itoa(p.Ineffective) + backoffSeparator + p.Until.UTC().Format(time.RFC3339)
}

// ParseBackoff reads BackoffAnnotation. An invalid value counts as absent.
func ParseBackoff(pod *corev1.Pod) disruption.Backoff {
	times, until, _ := strings.Cut(pod.Annotations[BackoffAnnotation], backoffSeparator)
	n, err := strconv.Atoi(times)
	at, bad := time.Parse(time.RFC3339, until)
	if err != nil || bad != nil || n < 1 {
		return disruption.Backoff{}
	}
	return disruption.Backoff{Ineffective: n, Until: at}
}

// UnboostedRequests returns the requests in force in a container of a running pod without a startup
// boost. The CPU of a boosted container is the VPA target if the VPA is not off or is generated,
// else the CPU before the boost. It is absent if unknown, and never above the current request. The
// VPA may be nil.
func UnboostedRequests(pod *corev1.Pod, container *corev1.Container, vpa *vpav1.VerticalPodAutoscaler) resources.List {
	requests := Resources(Current(pod, *container).Requests)
	annotation, boosted := pod.Annotations[BoostAnnotationPrefix+container.Name]
	if cpu, has := requests.Get(resources.CPU); boosted && has {
		requests = requests.Without(resources.CPU)
		if unboosted, known := unboostedCPU(annotation, container.Name, vpa); known {
			requests = requests.With(resources.CPU, min(cpu, unboosted))
		}
	}
	return requests
}

func unboostedCPU(annotation, container string, vpa *vpav1.VerticalPodAutoscaler) (cpu resources.Amount, known bool) {
	if vpa != nil && (Mode(vpa) != vpav1.UpdateModeOff || IsGenerated(vpa)) {
		if cpu, known = Recommendation(vpa.Status.Recommendation)[container].Target.Get(resources.CPU); known {
			return cpu, true
		}
	}
	var o storedContainer
	if json.Unmarshal([]byte(annotation), &o) != nil {
		return 0, false
	}
	return Resources(corev1.ResourceList(o.Requests)).Get(resources.CPU)
}

// ReasonEvicted is the reason of a pod failure, and of the event, after an eviction by the kubelet.
const ReasonEvicted = "Evicted"

// EvictedByKubelet reports whether the kubelet evicted a pod.
func EvictedByKubelet(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == ReasonEvicted
}

// SeparateMemoryLimit is the condition of a VPA with memory limits that do not follow the requests.
// The target is the request, and the upper bound determines the limit.
const SeparateMemoryLimit vpav1.VerticalPodAutoscalerConditionType = "SeparateMemoryLimit"

// HasSeparateMemoryLimit reports whether condition SeparateMemoryLimit is true.
func HasSeparateMemoryLimit(status *vpav1.VerticalPodAutoscalerStatus) bool {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == SeparateMemoryLimit {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// DeclaredAnnotation marks a pod with memory limits that do not follow its requests. It holds the
// memory in the pod template, because the ratio of the current memory differs:
// {"app":{"requests":{"memory":"100Mi"},"limits":{"memory":"150Mi"}}}.
const DeclaredAnnotation = "loadline.dev/declared-memory"

// in bytes
const maxDeclared = 16 << 10

// ParseDeclared reads DeclaredAnnotation, by container. An invalid value counts as absent.
func ParseDeclared(annotations map[string]string) map[string]policy.Proportion {
	text := annotations[DeclaredAnnotation]
	var containers map[string]storedContainer
	if text == "" || len(text) > maxDeclared || json.Unmarshal([]byte(text), &containers) != nil {
		return nil
	}
	declared := make(map[string]policy.Proportion, len(containers))
	for name, c := range containers {
		declared[name] = policy.Proportion{Request: memory(c.Requests), Limit: memory(c.Limits)}
	}
	return declared
}

func memory(n storedResources) resources.Amount {
	return Resources(corev1.ResourceList(n)).Value(resources.Memory)
}

// StricterDeclared returns the trusted one of two values of DeclaredAnnotation on one pod: now,
// unless it allows a larger limit than before or drops a container.
func StricterDeclared(before, now string) string {
	if before == "" || before == now {
		return now
	}
	current := ParseDeclared(map[string]string{DeclaredAnnotation: now})
	for name, was := range ParseDeclared(map[string]string{DeclaredAnnotation: before}) {
		if p := current[name]; was.Known() && (!p.Known() || p.Looser(was)) {
			return before
		}
	}
	return now
}

// MergeDeclared adds the declared memory of targets, and returns false if the value is unchanged.
func MergeDeclared(annotations map[string]string, targets []policy.ContainerTarget) (text string, changed bool) {
	known := ParseDeclared(annotations)
	for _, f := range targets {
		if !f.Declared.Known() || known[f.Name] == f.Declared {
			continue
		}
		if known == nil {
			known = map[string]policy.Proportion{}
		}
		known[f.Name], changed = f.Declared, true
	}
	if !changed {
		return "", false
	}
	if text = formatDeclared(known); len(text) > maxDeclared { // drop containers that have no target
		maps.DeleteFunc(known, func(name string, _ policy.Proportion) bool {
			return !slices.ContainsFunc(targets, func(f policy.ContainerTarget) bool { return f.Name == name })
		})
		text = formatDeclared(known)
	}
	return text, true
}

func formatDeclared(known map[string]policy.Proportion) string {
	containers := make(map[string]storedContainer, len(known))
	for name, p := range known {
		containers[name] = storedContainer{storeMemory(p.Request), storeMemory(p.Limit)}
	}
	raw, _ := json.Marshal(containers) // quantities never fail
	return string(raw)
}

func storeMemory(a resources.Amount) storedResources {
	return storedResources{corev1.ResourceMemory: Quantity(resources.Memory, a)}
}
