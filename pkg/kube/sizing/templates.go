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
const byAnnotated = "annotated for policies"

// WatchPods makes the policies read annotations from the pods of an informer. Call it before the
// informer starts. The pod template of a workload of an unlisted kind cannot be read, but its pods
// have the same annotations.
func (p *Policies) See(pods cache.SharedIndexInformer) error {
	err := pods.AddIndexers(cache.Indexers{byAnnotated: func(object any) ([]string, error) {
		if namespace, annotations := client.AnnotationsOf(object); fleet.Annotated(annotations) {
			return []string{namespace}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("watch the annotations of pods: %w", err)
	}
	heard := func(object any) {
		if _, annotations := client.AnnotationsOf(object); fleet.Annotated(annotations) {
			p.annotated.heard.Add(1)
		}
	}
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: heard, DeleteFunc: heard, UpdateFunc: func(before, now any) { heard(before); heard(now) }})
	if err != nil {
		return fmt.Errorf("watch the annotations of pods: %w", err)
	}
	p.pods = pods
	return nil
}

// annotatedPods caches pod annotations, because a namespace may have thousands of such pods and
// VPAs. Every changed pod invalidates the cache.
type annotated struct {
	heard      atomic.Uint64 // events of annotated pods
	mu         sync.Mutex
	namespaces map[string]*onPods
}

// namespaceAnnotations are the annotated pods of a namespace, by owner.
type onPods struct {
	of    map[target.Key]*corev1.Pod
	heard uint64    // events before the read
	fresh time.Time // no new read before this time
	stale time.Time // time of a read without events, as owners may arrive later
}

const (
	// pauseFactor limits the load of annotation reads: the pause after a read is at least this
	// multiple of its duration.
	restOf = 100
	// ownerDelay is the maximum delay of pod owners.
	ownersKnown = 10 * time.Second
)

// templateAnnotations returns the annotations of the newest annotated pod of a workload.
func (p *Policies) onPods(of target.Key) map[string]string {
	if p.pods == nil || !p.Now().Set().Names(of.Group, of.Kind, of.Name) {
		return nil
	}
	a := &p.annotated
	a.mu.Lock()
	defer a.mu.Unlock()
	heard, now := a.heard.Load(), time.Now()
	known := a.namespaces[of.Namespace]
	if known == nil || !now.Before(known.fresh) && (known.heard != heard || !now.Before(known.stale)) {
		known = &onPods{of: p.newestOf(of.Namespace), heard: heard}
		took := time.Since(now)
		known.fresh, known.stale = now.Add(restOf*took), now.Add(ownersKnown)
		a.namespaces[of.Namespace] = known
	}
	if newest := known.of[of]; newest != nil {
		return newest.Annotations
	}
	return nil
}

func (p *Policies) newestOf(namespace string) map[target.Key]*corev1.Pod {
	newest := map[target.Key]*corev1.Pod{}
	found, err := p.pods.GetIndexer().ByIndex(byAnnotated, namespace)
	if err != nil {
		return newest
	}
	for _, object := range found {
		pod, ok := client.PodOf(object)
		if !ok {
			continue
		}
		for owner := range p.workloads.Above(pod) {
			if before := newest[owner]; before == nil || newer(pod, before) {
				newest[owner] = pod
			}
		}
	}
	return newest
}

// newer prefers the smaller name among pods of the same age.
func newer(pod, than *corev1.Pod) bool {
	if pod.CreationTimestamp.Equal(&than.CreationTimestamp) {
		return pod.Name < than.Name
	}
	return than.CreationTimestamp.Before(&pod.CreationTimestamp)
}
