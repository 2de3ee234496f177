package sizing

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// HorizontalPodAutoscalers knows at which resources of which workloads they look. Make it with
// WatchHPAs.
type HorizontalPodAutoscalers struct {
	informer cache.SharedIndexInformer
	known    cache.InformerSynced
}

// byTarget is the index of an informer by the workload that is scaled.
const byTarget = "target"

// WatchHPAs returns what the informer of a factory knows. It must be called before that starts.
// The sentence says what follows if they cannot be read.
func WatchHPAs(core informers.SharedInformerFactory, sentence string) (*HorizontalPodAutoscalers, error) {
	h := &HorizontalPodAutoscalers{informer: core.Autoscaling().V2().HorizontalPodAutoscalers().Informer()}
	var err error
	if h.known, err = client.OptionalSync(h.informer, sentence); err != nil {
		return nil, fmt.Errorf("watch HorizontalPodAutoscalers: %w", err)
	}
	err = h.informer.AddIndexers(cache.Indexers{byTarget: func(object any) ([]string, error) {
		h, ok := object.(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok {
			return nil, nil
		}
		return []string{string(scaled(h))}, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("watch HorizontalPodAutoscalers: %w", err)
	}
	return h, nil
}

// Synced reports whether it is known what there is, or that it cannot be read.
func (h *HorizontalPodAutoscalers) Synced() bool { return h.known() }

// ScaleTarget is a workload as a HorizontalPodAutoscaler refers to it, of whatever API group.
type ScaleTarget string

// ScaleTargetOf returns how one refers to a workload.
func ScaleTargetOf(workload target.Key) ScaleTarget {
	return scaleTarget(workload.Namespace, workload.Kind, workload.Name)
}

// scaled returns what a HorizontalPodAutoscaler scales.
func scaled(h *autoscalingv2.HorizontalPodAutoscaler) ScaleTarget {
	return scaleTarget(h.Namespace, h.Spec.ScaleTargetRef.Kind, h.Spec.ScaleTargetRef.Name)
}

func scaleTarget(namespace, kind, name string) ScaleTarget {
	return ScaleTarget(namespace + "/" + kind + "/" + name)
}

// anyContainer stands for all containers of a pod.
const anyContainer = ""

// LookedAt are kinds of resources by container; nil: nobody looks at any.
type LookedAt map[string][resources.Kinds]bool

// Of reports at which resources of a container one looks.
func (l LookedAt) Of(container string) (kinds [resources.Kinds]bool) {
	all, one := l[anyContainer], l[container]
	for k := range kinds {
		kinds[k] = all[k] || one[k]
	}
	return kinds
}

// LooksAt returns at which resources of a workload's pods one looks; nil: none does. As long as
// they cannot be read any may, so it is all; so it is of a nil HorizontalPodAutoscalers.
func (h *HorizontalPodAutoscalers) LooksAt(workload ScaleTarget) LookedAt {
	if h == nil || !h.informer.HasSynced() {
		return LookedAt{anyContainer: {true, true}}
	}
	found, err := h.informer.GetIndexer().ByIndex(byTarget, string(workload))
	if err != nil {
		return LookedAt{anyContainer: {true, true}}
	}
	autoscalers := make([]*autoscalingv2.HorizontalPodAutoscaler, 0, len(found))
	for _, object := range found {
		if h, ok := object.(*autoscalingv2.HorizontalPodAutoscaler); ok {
			autoscalers = append(autoscalers, h)
		}
	}
	return lookedAt(autoscalers)
}

// lookedAt returns at which resources the HorizontalPodAutoscalers of one workload look.
func lookedAt(all []*autoscalingv2.HorizontalPodAutoscaler) LookedAt {
	var looked LookedAt
	note := func(container string, name corev1.ResourceName) {
		for k := range resources.Kind(resources.Kinds) {
			if convert.ResourceName(k) != name {
				continue
			}
			if looked == nil {
				looked = LookedAt{}
			}
			kinds := looked[container]
			kinds[k] = true
			looked[container] = kinds
		}
	}
	for _, autoscaler := range all {
		for _, m := range autoscaler.Spec.Metrics {
			switch {
			case m.Resource != nil:
				note(anyContainer, m.Resource.Name)
			case m.ContainerResource != nil:
				note(m.ContainerResource.Container, m.ContainerResource.Name)
			}
		}
	}
	return looked
}
