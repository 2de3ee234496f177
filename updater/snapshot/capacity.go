package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/nodeload"
)

// CapacityReader reads the free capacity of nodes and quotas. The zero value imposes no limits.
type CapacityReader struct {
	Pods           corelisters.PodLister
	Nodes          corelisters.NodeLister          // nil: unknown
	NodeInformer   Informer                        // set with Nodes
	Quotas         corelisters.ResourceQuotaLister // nil: none
	QuotaInformer  Informer                        // set with Quotas
	NodeAutoscaler *NodeAutoscaler                 // nil: nodes are not added
}

// Room returns the free capacity, or nil if it is unknown. It counts pods with and without a VPA.
// Unknown nodes have room. With a detected node autoscaler, nodes are added on demand.
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
		if nodes, err = freeNodes(objects, r.Pods); err != nil {
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
	if r.NodeAutoscaler != nil && r.NodeAutoscaler.Detected() {
		known.WithAutoscaling()
	}
	return known, nil
}

func freeNodes(objects []*corev1.Node, pods corelisters.PodLister) ([]disruption.Node, error) {
	nodes, arriving := make(map[string]*disruption.Node, len(objects)), map[*disruption.Node][]convert.Arrival{}
	for _, o := range objects {
		size := convert.Resources(o.Status.Allocatable)
		nodes[o.Name] = &disruption.Node{Name: o.Name, Allocatable: size, Free: size,
			AcceptsPods: !o.Spec.Unschedulable && !nodeload.Tainted(o) && !convert.IsSinglePod(o), FollowsPods: convert.IsVirtualNode(o)}
	}
	err := client.EachPod(pods, func(p *corev1.Pod) {
		node, known := nodes[p.Spec.NodeName]
		if !known {
			return
		}
		taken, waiting := convert.Footprint(p), convert.UngrantedResources(p)
		if convert.IsUnadmitted(p) {
			waiting = taken
		}
		if waiting != (resources.List{}) {
			arriving[node] = append(arriving[node], convert.Arrival{UID: p.UID, Created: p.CreationTimestamp.Time, Requests: waiting})
		}
		if convert.IsPerNode(p) {
			for k := range resources.Kind(resources.Kinds) {
				node.Fixed = node.Fixed.With(k, node.Fixed.Value(k).Add(taken.Value(k)))
			}
		}
		for k := range resources.Kind(resources.Kinds) {
			taken = taken.With(k, taken.Value(k).Add(-waiting.Value(k)))
		}
		reserve(node, taken)
	})
	for node, pods := range arriving {
		for _, p := range convert.Admitted(node.Free, pods) {
			reserve(node, p.Requests)
		}
	}
	sorted := make([]disruption.Node, 0, len(nodes))
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		sorted = append(sorted, *nodes[name])
	}
	return sorted, err
}

func reserve(node *disruption.Node, taken resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if left, counted := node.Free.Get(k); counted {
			node.Free = node.Free.With(k, left.Add(-taken.Value(k)))
		}
	}
}

const refreshInterval = 5 * time.Minute

// NodeAutoscaler caches whether a node autoscaler seems to add nodes.
type NodeAutoscaler struct {
	Kube     kubernetes.Interface
	Nodes    corelisters.NodeLister // nil: nodes are not readable
	Informer Informer               // set with Nodes

	refreshed time.Time
	known     bool
	sign      string
}

// Refresh searches for signs again after refreshInterval, and reports whether the result changed.
func (g *NodeAutoscaler) Refresh(ctx context.Context, now time.Time) (changed bool) {
	if !g.refreshed.IsZero() && now.Sub(g.refreshed) < refreshInterval {
		return false
	}
	g.refreshed = now
	sign, err := client.NodeAutoscaler{Kube: g.Kube}.Find(ctx, now, g.labels)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Failed to search for signs of a node autoscaler", "reason", err)
		return false
	}
	// Successive searches may find different signs first.
	changed = !g.known || (sign == "") != (g.sign == "")
	g.known, g.sign = true, sign
	return changed
}

// Detected reports whether a node autoscaler seems to add nodes.
func (g *NodeAutoscaler) Detected() bool { return g.sign != "" }

// Known reports whether a search has succeeded.
func (g *NodeAutoscaler) Known() bool { return g.known }

// Sign describes the sign that was found, or is empty.
func (g *NodeAutoscaler) Sign() string { return g.sign }

// Explain returns a sentence for users about the effect on evictions.
func (g *NodeAutoscaler) Explain() string { return client.ExplainEvictionRoom(g.sign) }

func (g *NodeAutoscaler) labels(context.Context) ([]map[string]string, error) {
	if g.Nodes == nil || !g.Informer.HasSynced() {
		return nil, nil
	}
	nodes, err := g.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	all := make([]map[string]string, len(nodes))
	for i, n := range nodes {
		all[i] = n.Labels
	}
	return all, nil
}
