package view

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/nodeload"
)

// CapacityReader reads from caches. The zero value knows nothing.
type CapacityReader struct {
	Pods         corelisters.PodLister
	Nodes        corelisters.NodeLister          // nil: it is not known what fits
	NodesSynced  func() bool                     // whether they are known yet
	Quotas       corelisters.ResourceQuotaLister // nil: no quota is known
	QuotasSynced func() bool                     // whether they are known yet
	Growth       *Growth                         // nil: not asked whether nodes are added
}

// Room reads what nodes and quotas have left; nil if nothing is known of them. It counts every pod in the cache,
// also those that no VPA controls; without a cache of nodes any node has room. Where nodes
// seem to be added the room is Growing.
func (r CapacityReader) Room() (*disruption.Capacity, error) {
	if r.Nodes == nil && r.Quotas == nil {
		return nil, nil //nolint:nilnil // that nothing is known is no error
	}
	var nodes []disruption.Node
	if r.Nodes != nil && r.NodesSynced() {
		objects, err := r.Nodes.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		if nodes, err = free(objects, r.Pods); err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
	}
	quotas := map[string][]disruption.Quota{}
	if r.Quotas != nil && r.QuotasSynced() {
		objects, err := r.Quotas.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("list ResourceQuotas: %w", err)
		}
		for _, q := range objects {
			quotas[q.Namespace] = append(quotas[q.Namespace], convert.Quota(q))
		}
	}
	known := disruption.NewCapacity(nodes, quotas)
	if r.Growth != nil && r.Growth.Seen() {
		known.Growing()
	}
	return known, nil
}

func free(objects []*corev1.Node, pods corelisters.PodLister) ([]disruption.Node, error) {
	nodes := make(map[string]*disruption.Node, len(objects))
	for _, o := range objects {
		size := convert.Resources(o.Status.Allocatable)
		nodes[o.Name] = &disruption.Node{Name: o.Name, Size: size, Free: size, Open: !o.Spec.Unschedulable && !nodeload.Tainted(o)}
	}
	err := client.EachPod(pods, func(p *corev1.Pod) {
		node, known := nodes[p.Spec.NodeName]
		if !known {
			return
		}
		taken := convert.Footprint(p)
		if convert.Unaccepted(p) && exceeds(taken, node.Size) {
			return // its kubelet will refuse it
		}
		for k := range resources.Kind(resources.Kinds) {
			if left, counted := node.Free.Get(k); counted {
				node.Free = node.Free.With(k, left.Add(-taken.Value(k)))
			}
		}
	})
	sorted := make([]disruption.Node, 0, len(nodes))
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		sorted = append(sorted, *nodes[name])
	}
	return sorted, err
}

// exceeds reports whether a pod takes more than a node has in all.
func exceeds(taken, size resources.List) bool {
	for k := range resources.Kind(resources.Kinds) {
		if most, counted := size.Get(k); counted && taken.Value(k) > most {
			return true
		}
	}
	return false
}
