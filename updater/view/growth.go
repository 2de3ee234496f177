package view

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/client"
)

// lookAgain is how long a sign, or that there is none, is believed.
const lookAgain = 5 * time.Minute

// Growth remembers whether nodes seem to be added for pods that find none.
type Growth struct {
	Kube   kubernetes.Interface
	Nodes  corelisters.NodeLister // nil: nodes cannot be seen
	Synced func() bool            // whether they are known yet

	looked time.Time
	known  bool
	sign   string
}

// Look looks again if that was long ago, and reports whether the answer is news.
func (g *Growth) Look(ctx context.Context, now time.Time) (news bool) {
	if !g.looked.IsZero() && now.Sub(g.looked) < lookAgain {
		return false
	}
	g.looked = now
	sign, err := client.NodeAutoscaler{Kube: g.Kube, Labelled: g.labelled}.Find(ctx, now)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("It is not known whether nodes are added for pods that find none", "reason", err)
		return false
	}
	// Which node has a label, or which sign is found first, may change without effect.
	news = !g.known || (sign == "") != (g.sign == "")
	g.known, g.sign = true, sign
	return news
}

// Seen reports whether nodes seem to be added.
func (g *Growth) Seen() bool { return g.sign != "" }

// Known reports whether that could be read at all.
func (g *Growth) Known() bool { return g.known }

// Sign is what shows it; empty: nothing does.
func (g *Growth) Sign() string { return g.sign }

// Explain says for people what that means for evictions, and why.
func (g *Growth) Explain() string { return client.ExplainEvictionRoom(g.sign) }

// labelled returns the first of the nodes with a label.
func (g *Growth) labelled(_ context.Context, label string) (string, error) {
	if g.Nodes == nil || !g.Synced() {
		return "", nil
	}
	has, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		return "", fmt.Errorf("select nodes: %w", err)
	}
	nodes, err := g.Nodes.List(labels.NewSelector().Add(*has))
	if err != nil || len(nodes) == 0 {
		return "", err
	}
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return slices.Min(names), nil
}
