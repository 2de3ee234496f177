package snapshot

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/client"
)

// lookAgain is the minimum time between two searches for signs of a node autoscaler.
const lookAgain = 5 * time.Minute

// NodeAutoscaler caches whether a node autoscaler seems to add nodes.
type NodeAutoscaler struct {
	Kube     kubernetes.Interface
	Nodes    corelisters.NodeLister // nil: nodes cannot be seen
	Informer Informer               // set with Nodes

	looked time.Time
	known  bool
	sign   string
}

// Look searches for signs again after lookAgain, and reports whether the result changed.
func (g *NodeAutoscaler) Look(ctx context.Context, now time.Time) (news bool) {
	if !g.looked.IsZero() && now.Sub(g.looked) < lookAgain {
		return false
	}
	g.looked = now
	sign, err := client.NodeAutoscaler{Kube: g.Kube}.Find(ctx, now, g.labels)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Failed to search for signs of a node autoscaler", "reason", err)
		return false
	}
	// The first sign that is found may differ each time.
	news = !g.known || (sign == "") != (g.sign == "")
	g.known, g.sign = true, sign
	return news
}

// Seen reports whether nodes seem to be added.
func (g *NodeAutoscaler) Seen() bool { return g.sign != "" }

// Known reports whether a search has succeeded.
func (g *NodeAutoscaler) Known() bool { return g.known }

// Sign describes the sign that was found, or is empty.
func (g *NodeAutoscaler) Sign() string { return g.sign }

// Explain returns a sentence for users about the effect on evictions.
func (g *NodeAutoscaler) Explain() string { return client.ExplainEvictionRoom(g.sign) }

// labels returns the labels of all nodes; none while nodes are unknown.
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
