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

// queueLimit is how many kills may wait for a pass.
const queueLimit = 5000

// OOMs holds the kills that wait for the next pass. Adding never blocks: what
// comes while the queue is full is dropped and counted.
//
//	pod that ran already is updated ──────────────────────────┐
//	new pod ── waits in Changes until its containers are known ┼─ OOMs ── Drain
//	event of an eviction for want of memory ── waits for its pod ┘
type OOMs struct {
	mu        sync.Mutex
	waiting   []usage.OOM
	dropped   int
	wake      chan struct{} // made when somebody first needs it
	evictions evictionClaims
}

// Add puts kills into the queue.
func (q *OOMs) Add(ooms ...usage.OOM) {
	if len(ooms) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(ooms)
}

// add is Add with the lock held.
func (q *OOMs) add(ooms []usage.OOM) {
	room := min(max(queueLimit-len(q.waiting), 0), len(ooms))
	q.waiting = append(q.waiting, ooms[:room]...)
	q.dropped += len(ooms) - room
	q.signal()
}

// AddAll puts kills into the queue however many they are: after a start all that
// still show in the pods come at once, old ones before new ones.
func (q *OOMs) AddAll(ooms []usage.OOM) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, ooms...)
}

// Wake returns a channel that receives after kills came in. One signal may stand
// for many kills, and may come late: the queue can be empty by then.
func (q *OOMs) Wake() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.channel()
}

// WakeUp makes Wake receive although the queue is empty: kills wait in a queue of changed pods, which is drained first.
func (q *OOMs) WakeUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.signal()
}

// channel returns that of Wake. The caller holds the lock.
func (q *OOMs) channel() chan struct{} {
	if q.wake == nil {
		q.wake = make(chan struct{}, 1)
	}
	return q.wake
}

// signal wakes who waits for kills. The caller holds the lock.
func (q *OOMs) signal() {
	select {
	case q.channel() <- struct{}{}:
	default:
	}
}

// Drain empties the queue; dropped is how many found no room since the last time.
func (q *OOMs) Drain() (ooms []usage.OOM, dropped int) {
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

// PodOOMs returns the out-of-memory kills that show in a pod, but not in an older state of it, nil if the pod is seen
// for the first time. A kill is recognised by the ID of the container that ended, wherever the status names it. Where a
// status has no such ID, a kill counts when the container has just ended with it, or when it runs again after a restart
// whose cause it was, and never at first sight. Memory and limit are those that the killed container had: of the older
// state, if it has been restarted since. A container without them gives 0.
func PodOOMs(older, newer *corev1.Pod) []usage.OOM {
	var ooms []usage.OOM
	for i := range newer.Status.ContainerStatuses {
		now := &newer.Status.ContainerStatuses[i]
		before := status(older, now.Name)
		if t := now.LastTerminationState.Terminated; t != nil && t.Reason == convert.OOMKilled && newInLast(before, now) {
			killed := older
			if before == nil {
				killed = newer
			}
			ooms = append(ooms, oom(killed, now.Name, t))
		}
		if t := now.State.Terminated; t != nil && t.Reason == convert.OOMKilled && newInState(before, now) {
			ooms = append(ooms, oom(newer, now.Name, t))
		}
	}
	return ooms
}

// newInState reports whether the container has ended since the older state.
func newInState(before, now *corev1.ContainerStatus) bool {
	if now.State.Terminated.ContainerID != "" {
		return !shows(before, now.State.Terminated)
	}
	return before != nil && (before.State.Terminated == nil || now.RestartCount > before.RestartCount)
}

// newInLast reports whether the container has ended and was restarted since the older state.
func newInLast(before, now *corev1.ContainerStatus) bool {
	if now.LastTerminationState.Terminated.ContainerID != "" {
		return !shows(before, now.LastTerminationState.Terminated)
	}
	running := now.State.Running != nil && before != nil && before.State.Running != nil
	return running && now.RestartCount > before.RestartCount
}

func shows(s *corev1.ContainerStatus, end *corev1.ContainerStateTerminated) bool {
	return s != nil && (same(s.State.Terminated, end) || same(s.LastTerminationState.Terminated, end))
}

func same(a, b *corev1.ContainerStateTerminated) bool {
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

// oom describes the kill of a container with the memory it has in pod.
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

// evictionID returns the same ID for a pod and an amount, however often that is reported.
func evictionID(event *corev1.Event, used string) string {
	if pod := event.InvolvedObject.UID; pod != "" {
		return string(pod) + " " + used
	}
	return string(event.UID)
}

// Annotations with which the kubelet says why it evicted a pod.
const (
	offenders      = "offending_containers"
	offendersUsage = "offending_containers_usage"
	starved        = "starved_resource"
)

// EvictionOOMs returns the out-of-memory evictions that an event reports: one for each container listed as short of
// memory, with the memory it used. Lists of different lengths are not trusted, entries that cannot be read are left
// out. Neither are events that another program than the kubelet reports.
func EvictionOOMs(event *corev1.Event) []usage.OOM {
	if event.Reason != convert.ReasonEvicted || event.InvolvedObject.Kind != "Pod" || cmp.Or(event.Source.Component, kubelet) != kubelet {
		return nil
	}
	containers := strings.Split(event.Annotations[offenders], ",")
	used := strings.Split(event.Annotations[offendersUsage], ",")
	kinds := strings.Split(event.Annotations[starved], ",")
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

// Changes collects what a pod informer reports, one entry a pod, until the next
// pass takes it. It is a cache.ResourceEventHandler.
type Changes struct {
	ooms *OOMs

	mu    sync.Mutex
	pods  map[cache.ObjectName]any // as the cache has them; nil: deleted
	found []usage.OOM              // in new pods
}

// NewChanges returns an empty collection that passes kills on to ooms.
func NewChanges(ooms *OOMs) *Changes {
	return &Changes{ooms: ooms, pods: map[cache.ObjectName]any{}}
}

// OnAdd takes a pod that the informer saw for the first time.
func (c *Changes) OnAdd(object any, isInInitialList bool) {
	pod, ok := client.PodOf(object)
	if !ok {
		return
	}
	ooms := firstSight(pod)
	if isInInitialList {
		withoutLaterSizes(object, ooms)
	}
	c.put(pod, object, ooms)
}

// firstSight returns the kills in the status of a pod that is new: one that is never restarted is not seen before it
// has ended, and others were killed while nobody watched.
func firstSight(pod *corev1.Pod) []usage.OOM {
	ooms := PodOOMs(nil, pod)
	for i := range ooms {
		ooms[i].Found = time.Now()
	}
	return ooms
}

// withoutLaterSizes removes the sizes from kills that ended before the program started, unless the pod was last resized
// before the kill. They may be sizes that the kill led to: each restart would raise them again.
func withoutLaterSizes(pod any, ooms []usage.OOM) {
	resized, known := client.ResizedAt(pod)
	for i := range ooms {
		if !known || !resized.Before(ooms[i].At) {
			ooms[i].Memory, ooms[i].Limit = 0, 0
		}
	}
}

// OnUpdate takes a new state of a pod.
func (c *Changes) OnUpdate(older, newer any) {
	before, ok1 := client.PodOf(older)
	now, ok2 := client.PodOf(newer)
	if !ok1 || !ok2 || before.ResourceVersion == now.ResourceVersion && now.ResourceVersion != "" {
		return
	}
	// A pod that replaced another of the same name did not restart.
	if before.UID != now.UID {
		c.put(now, newer, firstSight(now))
		return
	}
	c.put(now, newer, nil)
	c.ooms.Add(PodOOMs(before, now)...)
}

// OnDelete takes the end of a pod.
func (c *Changes) OnDelete(object any) {
	if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pods[name] = nil
	}
}

// put keeps the state of a pod. Kills found in it wait until it is drained: before that nobody knows its containers.
func (c *Changes) put(pod *corev1.Pod, object any, found []usage.OOM) {
	if convert.EvictedByKubelet(pod) {
		defer c.ooms.confirm(pod)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[cache.MetaObjectToName(pod)] = object
	if len(found) > 0 {
		c.found = append(c.found, found...)
		c.ooms.WakeUp()
	}
}

// Change is the latest state of a pod that changed.
type Change struct {
	Name   cache.ObjectName
	object any // as the cache has it; nil: deleted
}

// Pod returns the pod; nil if it was deleted.
func (c Change) Pod() *corev1.Pod {
	pod, _ := client.PodOf(c.object)
	return pod
}

// Drain returns what changed since the last time, sorted by name, and puts the kills found in new pods into the queue.
func (c *Changes) Drain() []Change {
	c.mu.Lock()
	pods, found := c.pods, c.found
	c.pods, c.found = map[cache.ObjectName]any{}, nil
	c.mu.Unlock()
	c.ooms.AddAll(found)
	changes := make([]Change, 0, len(pods))
	for name, object := range pods {
		changes = append(changes, Change{name, object})
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.Name.Namespace, b.Name.Namespace), strings.Compare(a.Name.Name, b.Name.Name))
	})
	return changes
}
