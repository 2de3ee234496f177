package oldview

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
	sign, err := client.NodeAutoscaler{Kube: g.Kube, Nodes: g.labels}.Find(ctx, now)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("It is not known whether nodes are added for pods that find none", "reason", err)
		return false
	}
	// Which sign is found first may change without effect.
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

// labels returns the labels of all nodes; none as long as nodes are not known.
func (g *Growth) labels(context.Context) ([]map[string]string, error) {
	if g.Nodes == nil || !g.Synced() {
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
