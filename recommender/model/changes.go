package model

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
)

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

// withoutLaterSizes removes the sizes from kills that ended before the program started, unless
// the pod was last resized before the kill. They may be sizes that the kill led to: each restart
// would raise them again.
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

// put keeps the state of a pod. Kills found in it wait until it is drained: before
// that nobody knows its containers.
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
