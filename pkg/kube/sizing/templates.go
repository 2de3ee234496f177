package sizing

import (
	"fmt"

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
	p.pods = pods
	return nil
}

// onPods returns the annotations of the newest pod of a workload that has some which count; of
// several as old the smaller name.
func (p *Policies) onPods(of target.Key) map[string]string {
	if p.pods == nil {
		return nil
	}
	found, err := p.pods.GetIndexer().ByIndex(byAnnotated, of.Namespace)
	if err != nil {
		return nil
	}
	var newest *corev1.Pod
	for _, object := range found {
		pod, ok := client.PodOf(object)
		if !ok || newest != nil && (pod.CreationTimestamp.Before(&newest.CreationTimestamp) || pod.CreationTimestamp.Equal(&newest.CreationTimestamp) && pod.Name > newest.Name) {
			continue
		}
		for owner := range p.workloads.Above(pod) {
			if owner == of {
				newest = pod
			}
		}
	}
	if newest == nil {
		return nil
	}
	return newest.Annotations
}
