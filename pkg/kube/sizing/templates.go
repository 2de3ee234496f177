package sizing

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// annotatedIndex indexes pods with policy annotations by namespace. They are few.
const annotatedIndex = "annotated for policies"

// WatchPods makes the policies read annotations from the pods of an informer. Call it before the
// informer starts. The pod template of a workload of an unlisted kind cannot be read, but its pods
// have the same annotations.
func (p *Policies) WatchPods(pods cache.SharedIndexInformer) error {
	err := pods.AddIndexers(cache.Indexers{annotatedIndex: func(object any) ([]string, error) {
		if namespace, annotations := client.AnnotationsOf(object); fleet.HasAnnotation(annotations) {
			return []string{namespace}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("watch the annotations of pods: %w", err)
	}
	count := func(object any) {
		if _, annotations := client.AnnotationsOf(object); fleet.HasAnnotation(annotations) {
			p.annotated.events.Add(1)
		}
	}
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: count, DeleteFunc: count, UpdateFunc: func(before, now any) { count(before); count(now) }})
	if err != nil {
		return fmt.Errorf("watch the annotations of pods: %w", err)
	}
	p.pods = pods
	return nil
}

// annotatedPods caches pod annotations, because a namespace may have thousands of such pods and
// VPAs. Every changed pod invalidates the cache.
type annotatedPods struct {
	events     atomic.Uint64 // events of annotated pods
	mu         sync.Mutex
	namespaces map[string]*namespaceAnnotations
}

type namespaceAnnotations struct {
	newest     map[target.Key]*corev1.Pod
	events     uint64    // events before the read
	validUntil time.Time // no new read before this time
	expires    time.Time // time of a read without events, as owners may arrive later
}

const (
	// pauseFactor limits the load: a pause is at least this multiple of the duration of a read.
	pauseFactor = 100
	// ownerDelay is the maximum delay of pod owners.
	ownerDelay = 10 * time.Second
)

// templateAnnotations returns the annotations of the newest annotated pod of a workload.
func (p *Policies) templateAnnotations(workload target.Key) map[string]string {
	if p.pods == nil || !p.Snapshot().Set().NamesWorkload(workload.Group, workload.Kind, workload.Name) {
		return nil
	}
	a := &p.annotated
	a.mu.Lock()
	defer a.mu.Unlock()
	heard, now := a.events.Load(), time.Now()
	known := a.namespaces[workload.Namespace]
	if known == nil || !now.Before(known.validUntil) && (known.events != heard || !now.Before(known.expires)) {
		known = &namespaceAnnotations{newest: p.newestPods(workload.Namespace), events: heard}
		took := time.Since(now)
		known.validUntil, known.expires = now.Add(pauseFactor*took), now.Add(ownerDelay)
		a.namespaces[workload.Namespace] = known
	}
	if newest := known.newest[workload]; newest != nil {
		return newest.Annotations
	}
	return nil
}

func (p *Policies) newestPods(namespace string) map[target.Key]*corev1.Pod {
	newest := map[target.Key]*corev1.Pod{}
	found, err := p.pods.GetIndexer().ByIndex(annotatedIndex, namespace)
	if err != nil {
		return newest
	}
	for _, object := range found {
		pod, ok := client.PodOf(object)
		if !ok {
			continue
		}
		for owner := range p.workloads.PodOwnerChain(pod) {
			if before := newest[owner]; before == nil || newer(pod, before) {
				newest[owner] = pod
			}
		}
	}
	return newest
}

func newer(pod, other *corev1.Pod) bool {
	if pod.CreationTimestamp.Equal(&other.CreationTimestamp) {
		return pod.Name < other.Name
	}
	return other.CreationTimestamp.Before(&pod.CreationTimestamp)
}
