package model

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
)

// queueLimit is how many kills may wait for a pass.
const queueLimit = 5000

// OOMs holds the kills that wait for the next pass. Adding never blocks: what
// comes while the queue is full is dropped and counted.
type OOMs struct {
	mu      sync.Mutex
	waiting []usage.OOM
	dropped int
	wake    chan struct{} // made when somebody first needs it
}

// Add puts kills into the queue.
func (q *OOMs) Add(ooms ...usage.OOM) {
	if len(ooms) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
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

// WakeUp makes Wake receive although the queue is empty: kills wait in a queue of changed
// pods, which is drained first.
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

// Drain empties the queue; dropped is how many found no room since the last
// time.
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
func (c *Changes) OnAdd(object any, _ bool) {
	if pod, ok := client.PodOf(object); ok {
		c.put(cache.MetaObjectToName(pod), object, firstSight(pod))
	}
}

// firstSight returns the kills in the status of a pod that is new: one that is
// never restarted is not seen before it has ended, and others were killed while
// nobody watched.
func firstSight(pod *corev1.Pod) []usage.OOM {
	ooms := PodOOMs(nil, pod)
	for i := range ooms {
		ooms[i].Found = time.Now()
	}
	return ooms
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
		c.put(cache.MetaObjectToName(now), newer, firstSight(now))
		return
	}
	c.put(cache.MetaObjectToName(now), newer, nil)
	c.ooms.Add(PodOOMs(before, now)...)
}

// OnDelete takes the end of a pod.
func (c *Changes) OnDelete(object any) {
	if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
		c.put(name, nil, nil)
	}
}

// put keeps the state of a pod. Kills found in it wait until it is drained: before
// that nobody knows its containers.
func (c *Changes) put(name cache.ObjectName, pod any, found []usage.OOM) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[name] = pod
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

// Drain returns what changed since the last time, sorted by name, and puts the
// kills found in new pods into the queue.
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
		if a.Name.Namespace != b.Name.Namespace {
			return strings.Compare(a.Name.Namespace, b.Name.Namespace)
		}
		return strings.Compare(a.Name.Name, b.Name.Name)
	})
	return changes
}
