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

// byAnnotated is the index of an informer of pods by the namespace of those with annotations
// that count for policies. They are few.
const byAnnotated = "annotated for policies"

// See makes the policies look at the pods of an informer, before that starts: the pod template of
// a workload that is not listed cannot be read, but what is annotated there is on its pods.
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

// annotated remembers what is annotated on the pods of workloads. A namespace may have thousands of
// such pods and of VPAs, and whoever changes pods makes it change.
type annotated struct {
	heard      atomic.Uint64 // events of such pods
	mu         sync.Mutex
	namespaces map[string]*onPods
}

// onPods is what is annotated on the pods of a namespace, by the workloads above them.
type onPods struct {
	of    map[target.Key]*corev1.Pod // the newest that has some
	heard uint64                     // events before it was looked at
	fresh time.Time                  // until then it is not looked at again
	stale time.Time                  // from then on it is, also if nothing was heard: owners may be known later than pods
}

const (
	// restOf bounds the part of the time that goes into looking at the annotations of pods.
	restOf = 100
	// ownersKnown is when all owners of pods are known.
	ownersKnown = 10 * time.Second
)

// onPods returns the annotations of the newest pod of a workload that has some which count; of
// several as old the smaller name.
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

// newestOf returns of each workload of a namespace the newest pod with annotations that count.
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

// newer reports whether a pod is newer than another one, or as old with a smaller name.
func newer(pod, than *corev1.Pod) bool {
	if pod.CreationTimestamp.Equal(&than.CreationTimestamp) {
		return pod.Name < than.Name
	}
	return than.CreationTimestamp.Before(&pod.CreationTimestamp)
}
