package snapshot

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

// CapacityReader reads the free capacity of nodes and quotas. Nothing limits the zero value.
type CapacityReader struct {
	Pods           corelisters.PodLister
	Nodes          corelisters.NodeLister          // nil: unknown
	NodeInformer   Informer                        // set with Nodes
	Quotas         corelisters.ResourceQuotaLister // nil: none
	QuotaInformer  Informer                        // set with Quotas
	NodeAutoscaler *NodeAutoscaler                 // nil: nodes are not added
}

// Room returns the free capacity of nodes and quotas; nil: both are unknown. It counts all pods, with and without a
// VPA. Every node has room while nodes are unknown. The capacity is Growing with a node autoscaler.
func (r CapacityReader) Room() (*disruption.Capacity, error) {
	if r.Nodes == nil && r.Quotas == nil {
		return nil, nil //nolint:nilnil // unknown capacity is no error
	}
	var nodes []disruption.Node
	if r.Nodes != nil && r.NodeInformer.HasSynced() {
		objects, err := r.Nodes.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		if nodes, err = free(objects, r.Pods); err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
	}
	quotas := map[string][]disruption.Quota{}
	if r.Quotas != nil && r.QuotaInformer.HasSynced() {
		objects, err := r.Quotas.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("list ResourceQuotas: %w", err)
		}
		for _, q := range objects {
			quotas[q.Namespace] = append(quotas[q.Namespace], convert.Quota(q))
		}
	}
	known := disruption.NewCapacity(nodes, quotas)
	if r.NodeAutoscaler != nil && r.NodeAutoscaler.Seen() {
		known.Growing()
	}
	return known, nil
}

func free(objects []*corev1.Node, pods corelisters.PodLister) ([]disruption.Node, error) {
	nodes, arriving := make(map[string]*disruption.Node, len(objects)), map[*disruption.Node][]convert.Arrival{}
	for _, o := range objects {
		size := convert.Resources(o.Status.Allocatable)
		nodes[o.Name] = &disruption.Node{Name: o.Name, Size: size, Free: size,
			Open: !o.Spec.Unschedulable && !nodeload.Tainted(o) && !convert.IsSinglePod(o), FollowsPods: convert.FollowsPods(o)}
	}
	err := client.EachPod(pods, func(p *corev1.Pod) {
		node, known := nodes[p.Spec.NodeName]
		if !known {
			return
		}
		taken, waiting := convert.Footprint(p), convert.Waiting(p)
		if convert.Unaccepted(p) {
			waiting = taken
		}
		if waiting != (resources.List{}) {
			arriving[node] = append(arriving[node], convert.Arrival{UID: p.UID, Created: p.CreationTimestamp.Time, Takes: waiting})
		}
		if convert.AlwaysThere(p) {
			for k := range resources.Kind(resources.Kinds) {
				node.Fixed = node.Fixed.With(k, node.Fixed.Value(k).Add(taken.Value(k)))
			}
		}
		for k := range resources.Kind(resources.Kinds) {
			taken = taken.With(k, taken.Value(k).Add(-waiting.Value(k)))
		}
		take(node, taken)
	})
	for node, pods := range arriving {
		for _, p := range convert.Accepted(node.Free, pods) {
			take(node, p.Takes)
		}
	}
	sorted := make([]disruption.Node, 0, len(nodes))
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		sorted = append(sorted, *nodes[name])
	}
	return sorted, err
}

// take subtracts the requests of a pod from the free resources of a node.
func take(node *disruption.Node, taken resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if left, counted := node.Free.Get(k); counted {
			node.Free = node.Free.With(k, left.Add(-taken.Value(k)))
		}
	}
}
