package validate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/nodefit"
)

const (
	nodesMaxAge   = 10 * time.Minute // max age while nodes are needed
	nodesRetryAge = 30 * time.Second // max age after a pod exceeded all nodes
	nodesPage     = 250
	nodesTimeout  = 30 * time.Second // for reading all of them

	daemonsPage       = 20 // tenants decide the size of DaemonSets and pods
	podsPage          = 50
	maxDaemons        = 1000
	maxPlacementTerms = 100
)

func placementTerms(spec *corev1.PodSpec) (n int) {
	n = len(spec.NodeSelector) + len(spec.Tolerations)
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return n
	}
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, expressions := range [][]corev1.NodeSelectorRequirement{term.MatchExpressions, term.MatchFields} {
			for i := range expressions {
				n += 1 + len(expressions[i].Values)
			}
		}
	}
	return n
}

func requiredAffinity(a *corev1.Affinity) *corev1.Affinity {
	if a == nil || a.NodeAffinity == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}
}

// Nodes returns the nodes available to new pods, nil if they are unknown or larger ones may be
// added. They are polled while needed, not watched: a watch would wake an idle program.
func (c *Cluster) Nodes() *nodefit.Nodes {
	c.nodesNeeded.Store(true)
	return c.nodes.Load()
}

// Exceeded records that a pod exceeded every node, because a larger node may exist by now.
func (c *Cluster) Exceeded() { c.nodesExceeded.Store(true) }

func (c *Cluster) followNodes(ctx context.Context) {
	c.nodesNeeded.Store(true)
	var read time.Time
	soon := nodesRetryAge // doubles after each early read without a larger node
	for {
		age, early := time.Since(read), c.nodesExceeded.Load()
		if c.nodesNeeded.Load() && age >= nodesMaxAge || early && age >= soon {
			c.nodesNeeded.Store(false)
			c.nodesExceeded.Store(false)
			before := c.largest.Load()
			if err := c.readNodes(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(1).Info("Failed to read nodes, giving no warnings about bounds that none can hold and not capping new pods", "reason", err)
			}
			read = time.Now()
			soon = min(2*soon, nodesMaxAge)
			if now := c.largest.Load(); !early || before == nil || now == nil || *before != *now {
				soon = nodesRetryAge
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(nodesRetryAge):
		}
	}
}

// readNodes reads nodes, their DaemonSets, and whether larger nodes may be added.
func (c *Cluster) readNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	most, growing := resources.List{}, 0
	var all []corev1.Node
	err := listPages(func(o metav1.ListOptions) (string, error) {
		page, err := c.Kube.CoreV1().Nodes().List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			n := &page.Items[i]
			has := convert.Resources(n.Status.Allocatable)
			if convert.IsVirtualNode(n) {
				growing++
			}
			for k := range resources.Kind(resources.Kinds) {
				most = most.With(k, max(most.Value(k), has.Value(k)))
			}
			all = append(all, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}, Spec: corev1.NodeSpec{Taints: n.Spec.Taints},
				Status: corev1.NodeStatus{Allocatable: n.Status.Allocatable}})
		}
		return page.Continue, nil
	})
	if err != nil {
		c.nodes.Store(nil)
		return fmt.Errorf("list nodes: %w", err)
	}
	if growing > 1 || 2*growing > len(all) { // ignore a single node that labels itself
		most = resources.List{}
	}
	c.largest.Store(&most)
	nodes, err := c.summarize(ctx, all)
	c.nodes.Store(nodes)
	return err
}

// summarize returns the nodes that cap new pods, nil if larger ones may be added.
func (c *Cluster) summarize(ctx context.Context, all []corev1.Node) (*nodefit.Nodes, error) {
	read := func(context.Context) ([]map[string]string, error) {
		labels := make([]map[string]string, len(all))
		for i := range all {
			labels[i] = all[i].Labels
		}
		return labels, nil
	}
	if sign, err := (client.NodeAutoscaler{Kube: c.Kube, Cautious: true}).Find(ctx, time.Now(), read); err != nil || sign != "" {
		return nil, err
	}
	if err := c.reserveForStaticPods(ctx, all); err != nil { // missing permission: continue without them
		klog.FromContext(ctx).V(4).Info("Failed to read static pods, capping new pods without them", "reason", err)
	}
	var daemons []nodefit.DaemonSet
	err := listPages(func(o metav1.ListOptions) (string, error) {
		o.Limit = daemonsPage
		page, err := c.Kube.AppsV1().DaemonSets("").List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			d := &page.Items[i]
			if d.Status.NumberReady == 0 || placementTerms(&d.Spec.Template.Spec) > maxPlacementTerms || len(daemons) == maxDaemons {
				continue // unused, or built by a tenant to waste memory
			}
			spec := &d.Spec.Template.Spec
			daemons = append(daemons, nodefit.DaemonSet{Namespace: d.Namespace, Name: d.Name, Requests: convert.Footprint(&corev1.Pod{Spec: *spec}),
				Placement: nodefit.Placement{NodeSelector: spec.NodeSelector, Affinity: requiredAffinity(spec.Affinity), Tolerations: spec.Tolerations}})
		}
		return page.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list DaemonSets: %w", err)
	}
	return nodefit.Summarize(all, daemons), nil
}

func listPages(list func(metav1.ListOptions) (next string, err error)) error {
	for options := (metav1.ListOptions{Limit: nodesPage}); ; {
		next, err := list(options)
		if err != nil || next == "" {
			return err
		}
		options.Continue = next
	}
}
