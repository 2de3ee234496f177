package model

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
)

const queueLimit = 5000

// KillQueue queues kills for the next iteration. Add never blocks. It drops and counts kills while the
// queue is full.
//
//	update of a known pod ────────────────────────────────────┐
//	new pod ── waits in Changes until its containers are known ┼─ KillQueue ── Drain
//	event of a memory eviction ── waits for its pod ───────────┘
type KillQueue struct {
	mu        sync.Mutex
	waiting   []usage.OOM
	dropped   int
	wake      chan struct{} // created on first use
	evictions evictionClaims
}

// Add queues kills.
func (q *KillQueue) Add(ooms ...usage.OOM) {
	if len(ooms) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(ooms)
}

func (q *KillQueue) add(ooms []usage.OOM) {
	room := min(max(queueLimit-len(q.waiting), 0), len(ooms))
	q.waiting = append(q.waiting, ooms[:room]...)
	q.dropped += len(ooms) - room
	q.signal()
}

// AddUnlimited queues kills without a limit. After a start, all kills in pod statuses arrive at once, old
// ones first.
func (q *KillQueue) AddUnlimited(ooms []usage.OOM) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, ooms...)
}

// Wake signals queued kills. One signal may stand for many, and the queue may be empty by then.
func (q *KillQueue) Wake() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.channel()
}

// Signal signals Wake for kills that wait in Changes, which is drained first.
func (q *KillQueue) Signal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.signal()
}

// channel requires the lock.
func (q *KillQueue) channel() chan struct{} {
	if q.wake == nil {
		q.wake = make(chan struct{}, 1)
	}
	return q.wake
}

// signal requires the lock.
func (q *KillQueue) signal() {
	select {
	case q.channel() <- struct{}{}:
	default:
	}
}

// Drain empties the queue. dropped is the number of kills dropped since the last call.
func (q *KillQueue) Drain() (ooms []usage.OOM, dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ooms, dropped = q.waiting, q.dropped
	q.waiting, q.dropped = nil, 0
	select {
	case <-q.channel():
	default:
	}
	return ooms, dropped
}

// PodOOMs returns the out-of-memory kills in a pod status that its older state lacks. older is nil
// at first sight. A kill is identified by the ID of the ended container. Without an ID it counts
// only if the container has just ended or restarted because of it, and never at first sight. Memory
// and limit come from the state in which the container was killed, and are 0 if unset.
func PodOOMs(older, newer *corev1.Pod) []usage.OOM {
	var ooms []usage.OOM
	for i := range newer.Status.ContainerStatuses {
		now := &newer.Status.ContainerStatuses[i]
		before := status(older, now.Name)
		if t := now.LastTerminationState.Terminated; t != nil && t.Reason == convert.OOMKilled && isNewLastTermination(before, now) {
			killed := older
			if before == nil {
				killed = newer
			}
			ooms = append(ooms, oom(killed, now.Name, t))
		}
		if t := now.State.Terminated; t != nil && t.Reason == convert.OOMKilled && isNewTermination(before, now) {
			ooms = append(ooms, oom(newer, now.Name, t))
		}
	}
	return ooms
}

func isNewTermination(before, now *corev1.ContainerStatus) bool {
	if now.State.Terminated.ContainerID != "" {
		return !hasTermination(before, now.State.Terminated)
	}
	return before != nil && (before.State.Terminated == nil || now.RestartCount > before.RestartCount)
}

func isNewLastTermination(before, now *corev1.ContainerStatus) bool {
	if now.LastTerminationState.Terminated.ContainerID != "" {
		return !hasTermination(before, now.LastTerminationState.Terminated)
	}
	running := now.State.Running != nil && before != nil && before.State.Running != nil
	return running && now.RestartCount > before.RestartCount
}

func hasTermination(s *corev1.ContainerStatus, end *corev1.ContainerStateTerminated) bool {
	return s != nil && (sameTermination(s.State.Terminated, end) || sameTermination(s.LastTerminationState.Terminated, end))
}

func sameTermination(a, b *corev1.ContainerStateTerminated) bool {
	return a != nil && a.ContainerID == b.ContainerID && a.FinishedAt.Equal(&b.FinishedAt)
}

func status(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	if pod == nil {
		return nil
	}
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func oom(pod *corev1.Pod, container string, end *corev1.ContainerStateTerminated) usage.OOM {
	report := usage.OOM{
		Container: usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: container},
		At:        end.FinishedAt.Time,
	}
	if end.ContainerID != "" {
		report.ID = end.ContainerID + " " + end.FinishedAt.UTC().Format(time.RFC3339)
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == container {
			current := convert.Current(pod, pod.Spec.Containers[i])
			report.Memory = convert.Resources(current.Requests).Value(resources.Memory)
			report.Limit = convert.Resources(current.Limits).Value(resources.Memory)
		}
	}
	return report
}

const kubelet = "kubelet"

// evictionID returns the same ID for repeated reports.
func evictionID(event *corev1.Event, used string) string {
	if pod := event.InvolvedObject.UID; pod != "" {
		return string(pod) + " " + used
	}
	return string(event.UID)
}

const (
	offendingContainersAnnotation = "offending_containers"
	offendingUsageAnnotation      = "offending_containers_usage"
	starvedResourceAnnotation     = "starved_resource"
)

// EvictionOOMs returns the memory evictions of a kubelet event with the usage of each container. It
// ignores other events, lists of different lengths and unreadable entries.
func EvictionOOMs(event *corev1.Event) []usage.OOM {
	if event.Reason != convert.ReasonEvicted || event.InvolvedObject.Kind != "Pod" || cmp.Or(event.Source.Component, kubelet) != kubelet {
		return nil
	}
	containers := strings.Split(event.Annotations[offendingContainersAnnotation], ",")
	used := strings.Split(event.Annotations[offendingUsageAnnotation], ",")
	kinds := strings.Split(event.Annotations[starvedResourceAnnotation], ",")
	if len(containers) != len(used) || len(containers) != len(kinds) {
		return nil
	}
	var ooms []usage.OOM
	for i, container := range containers {
		if kinds[i] != string(corev1.ResourceMemory) {
			continue
		}
		if vpav1.CheckQuantity(used[i]) != nil {
			continue
		}
		q, err := resource.ParseQuantity(used[i])
		if err != nil || q.Sign() < 0 {
			continue
		}
		ooms = append(ooms, usage.OOM{
			Container: usage.ContainerKey{Namespace: event.InvolvedObject.Namespace, Pod: event.InvolvedObject.Name, Container: container},
			At:        event.CreationTimestamp.Time,
			Memory:    convert.Amount(resources.Memory, q),
			ID:        evictionID(event, used[i]),
		})
	}
	return ooms
}

// Changes is a cache.ResourceEventHandler that collects pod events, the latest of each pod.
type Changes struct {
	ooms *KillQueue

	mu         sync.Mutex
	pods       map[cache.ObjectName]any // cached objects, nil: deleted
	newPodOOMs []usage.OOM              // kills in new pods
}

// NewChanges returns an empty collection that forwards kills to ooms.
func NewChanges(ooms *KillQueue) *Changes {
	return &Changes{ooms: ooms, pods: map[cache.ObjectName]any{}}
}

// OnAdd records a new pod.
func (c *Changes) OnAdd(object any, isInInitialList bool) {
	pod, ok := client.PodOf(object)
	if !ok {
		return
	}
	ooms := initialOOMs(pod)
	if isInInitialList {
		clearLaterMemory(object, ooms)
	}
	c.put(pod, object, ooms)
}

// initialOOMs returns the kills of a new pod. A pod that never restarts may first be seen after it
// has ended, and kills may have happened while the recommender was down.
func initialOOMs(pod *corev1.Pod) []usage.OOM {
	ooms := PodOOMs(nil, pod)
	for i := range ooms {
		ooms[i].Discovered = time.Now()
	}
	return ooms
}

// clearLaterMemory clears the memory of kills before the start, unless the pod was last resized
// before the kill. The current values may be a reaction to it, and each restart would raise them
// again.
func clearLaterMemory(pod any, ooms []usage.OOM) {
	resized, known := client.ResizedAt(pod)
	for i := range ooms {
		if !known || !resized.Before(ooms[i].At) {
			ooms[i].Memory, ooms[i].Limit = 0, 0
		}
	}
}

// OnUpdate records a changed pod.
func (c *Changes) OnUpdate(older, newer any) {
	before, ok1 := client.PodOf(older)
	now, ok2 := client.PodOf(newer)
	if !ok1 || !ok2 || before.ResourceVersion == now.ResourceVersion && now.ResourceVersion != "" {
		return
	}
	// A pod that replaced another one of the same name did not restart.
	if before.UID != now.UID {
		c.put(now, newer, initialOOMs(now))
		return
	}
	c.put(now, newer, nil)
	c.ooms.Add(PodOOMs(before, now)...)
}

// OnDelete records a deleted pod.
func (c *Changes) OnDelete(object any) {
	if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pods[name] = nil
	}
}

// put records a pod. Kills in it wait until Drain, because its containers are unknown before.
func (c *Changes) put(pod *corev1.Pod, object any, found []usage.OOM) {
	if convert.EvictedByKubelet(pod) {
		defer c.ooms.confirm(pod)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[cache.MetaObjectToName(pod)] = object
	if len(found) > 0 {
		c.newPodOOMs = append(c.newPodOOMs, found...)
		c.ooms.Signal()
	}
}

// Change is the latest state of a pod that changed.
type Change struct {
	Name   cache.ObjectName
	object any // cached object, nil: deleted
}

// Pod returns the pod, or nil if it was deleted.
func (c Change) Pod() *corev1.Pod {
	pod, _ := client.PodOf(c.object)
	return pod
}

// Drain returns the changes since the last call, sorted by name, and queues the kills of new pods.
func (c *Changes) Drain() []Change {
	c.mu.Lock()
	pods, found := c.pods, c.newPodOOMs
	c.pods, c.newPodOOMs = map[cache.ObjectName]any{}, nil
	c.mu.Unlock()
	c.ooms.AddUnlimited(found)
	changes := make([]Change, 0, len(pods))
	for name, object := range pods {
		changes = append(changes, Change{name, object})
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.Name.Namespace, b.Name.Namespace), strings.Compare(a.Name.Name, b.Name.Name))
	})
	return changes
}
