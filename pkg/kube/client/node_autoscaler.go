package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The ConfigMap in which cluster-autoscaler says every few seconds what it does, and the
// annotation that says when it did so last.
const (
	autoscalerNamespace = "kube-system"
	autoscalerStatus    = "cluster-autoscaler-status"
	autoscalerUpdated   = "cluster-autoscaler.kubernetes.io/last-updated"
)

// freshStatus is how old a status may be at most. The clocks of two programs may differ.
const freshStatus = time.Hour

// Labels of nodes. Those of Karpenter say that a node was added for pods.
var (
	karpenterLabels = []string{"karpenter.sh/nodepool", "karpenter.sh/provisioner-name"}
	// Those of managed pools are on all nodes of such a cluster, also where none is ever added. Its autoscaler writes
	// the ConfigMap, so they count only where that may not be read.
	managedLabels = []string{"cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool"}
)

// NodeAutoscalerLabels returns the labels of nodes that Find looks at.
func NodeAutoscalerLabels() []string { return slices.Concat(karpenterLabels, managedLabels) }

// Group and resource by which the API server shows that Karpenter is installed.
const (
	karpenterGroup = "karpenter.sh"
	nodePools      = "nodepools"
)

// NodeAutoscaler detects an autoscaler that adds nodes for pending pods: by the status of cluster-autoscaler, by the
// kind NodePool of Karpenter or its labels on most nodes or, without permission to read that status, by labels of
// managed pools on most nodes. Labels of a few nodes do not count, because a kubelet can label its own node. It cannot
// predict whether a node would be added for a certain pod.
type NodeAutoscaler struct {
	Kube kubernetes.Interface
	// Cautious counts what only leaves open whether nodes are added: a status that may not be read, and
	// nodes of managed pools.
	Cautious bool
}

// Find returns what shows at now that nodes are added; empty if nothing does. It reads the labels of each node with
// labels, if it needs them. An error says that it is not known.
func (c NodeAutoscaler) Find(ctx context.Context, now time.Time, labels func(context.Context) ([]map[string]string, error)) (sign string, err error) {
	status, err := c.Kube.CoreV1().ConfigMaps(autoscalerNamespace).Get(ctx, autoscalerStatus, metav1.GetOptions{})
	hidden := apierrors.IsForbidden(err)
	switch {
	case err == nil && isFreshStatus(status, now):
		return fmt.Sprintf("ConfigMap %s/%s of cluster-autoscaler", autoscalerNamespace, autoscalerStatus), nil
	case err != nil && !hidden && !apierrors.IsNotFound(err):
		return "", fmt.Errorf("read ConfigMap %s/%s: %w", autoscalerNamespace, autoscalerStatus, err)
	}
	nodes, err := labels(ctx)
	if err != nil {
		return "", fmt.Errorf("read the labels of nodes: %w", err)
	}
	if sign = labelOfMost(nodes, karpenterLabels); sign != "" {
		return sign, nil
	}
	if sign, err = c.served(); sign != "" || err != nil || !hidden && !c.Cautious {
		return sign, err
	}
	if sign = labelOfMost(nodes, managedLabels); sign == "" && hidden && c.Cautious {
		sign = fmt.Sprintf("ConfigMap %s/%s, which may not be read", autoscalerNamespace, autoscalerStatus)
	}
	return sign, nil
}

// isFreshStatus reports whether a status was written of late. One that does not say when counts.
func isFreshStatus(status *corev1.ConfigMap, now time.Time) bool {
	text, _, _ := strings.Cut(status.Annotations[autoscalerUpdated], " m=")
	at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", text)
	return err != nil || now.Sub(at) < freshStatus
}

// labelOfMost names the first of the labels that a node has; empty unless most nodes have one.
func labelOfMost(nodes []map[string]string, labels []string) string {
	labelled, first := 0, len(labels)
	for _, node := range nodes {
		at := slices.IndexFunc(labels, func(label string) bool { _, has := node[label]; return has })
		if at >= 0 {
			labelled, first = labelled+1, min(first, at)
		}
	}
	if 2*labelled <= len(nodes) {
		return ""
	}
	return fmt.Sprintf("label %s of most nodes", labels[first])
}

// served looks whether the API server has NodePools of Karpenter.
func (c NodeAutoscaler) served() (string, error) {
	groups, err := c.Kube.Discovery().ServerGroups()
	if err != nil {
		return "", fmt.Errorf("read the groups of the API server: %w", err)
	}
	for _, g := range groups.Groups {
		if g.Name != karpenterGroup {
			continue
		}
		resources, err := c.Kube.Discovery().ServerResourcesForGroupVersion(g.PreferredVersion.GroupVersion)
		if err != nil {
			return "", fmt.Errorf("read the resources of %s: %w", g.PreferredVersion.GroupVersion, err)
		}
		if slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == nodePools }) {
			return "the kind NodePool of Karpenter", nil
		}
	}
	return "", nil
}

// ExplainEvictionRoom says for people what follows from a sign for evictions.
func ExplainEvictionRoom(sign string) string {
	if sign == "" {
		return "evictions wait for a node with free room, because nothing shows that nodes are added"
	}
	return "evictions do not wait for room on nodes, because nodes seem to be added: " + sign
}
