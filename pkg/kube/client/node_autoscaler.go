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

// The status ConfigMap that cluster-autoscaler updates every few seconds.
const (
	autoscalerNamespace = "kube-system"
	autoscalerStatus    = "cluster-autoscaler-status"
	autoscalerUpdated   = "cluster-autoscaler.kubernetes.io/last-updated"
)

// maxStatusAge allows for clock differences between programs.
const maxStatusAge = time.Hour

// Node labels of Karpenter are only on nodes that were added for pods.
var (
	karpenterLabels = []string{"karpenter.sh/nodepool", "karpenter.sh/provisioner-name"}
	// managedLabels are on all nodes of a managed pool, even if no node is ever added, so they
	// count only if reading the ConfigMap is forbidden.
	managedLabels = []string{"cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool"}
)

// NodeAutoscalerLabels returns the node labels that Find reads.
func NodeAutoscalerLabels() []string { return slices.Concat(karpenterLabels, managedLabels) }

const (
	karpenterGroup = "karpenter.sh"
	nodePools      = "nodepools"
)

// NodeAutoscaler detects an autoscaler that adds nodes for pending pods, by the status of
// cluster-autoscaler, the kind NodePool of Karpenter, or labels on most nodes. Labels of managed
// pools count only without permission to read the status. Labels of a few nodes do not count,
// because a kubelet can label its own node. It cannot predict whether a certain pod gets a node.
type NodeAutoscaler struct {
	Kube kubernetes.Interface
	// Cautious accepts weak signs too: an unreadable status, and nodes of managed pools.
	Cautious bool
}

// Find returns a sign that nodes are added, or an empty string. It calls labels for the labels of
// all nodes if necessary. After an error the answer is unknown.
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
	if sign = majorityLabel(nodes, karpenterLabels); sign != "" {
		return sign, nil
	}
	if sign, err = c.findNodePools(); sign != "" || err != nil || !hidden && !c.Cautious {
		return sign, err
	}
	if sign = majorityLabel(nodes, managedLabels); sign == "" && hidden && c.Cautious {
		sign = fmt.Sprintf("ConfigMap %s/%s, which is forbidden to read", autoscalerNamespace, autoscalerStatus)
	}
	return sign, nil
}

// isFreshStatus also accepts a status without a valid time.
func isFreshStatus(status *corev1.ConfigMap, now time.Time) bool {
	text, _, _ := strings.Cut(status.Annotations[autoscalerUpdated], " m=")
	at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", text)
	return err != nil || now.Sub(at) < maxStatusAge
}

// majorityLabel returns the first of the labels on any node, if most nodes have one of the labels.
func majorityLabel(nodes []map[string]string, labels []string) string {
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

func (c NodeAutoscaler) findNodePools() (string, error) {
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

// ExplainEvictionRoom explains the effect of a sign on evictions.
func ExplainEvictionRoom(sign string) string {
	if sign == "" {
		return "evictions wait for a node with free capacity, because no node autoscaler was detected"
	}
	return "evictions do not wait for node capacity, because a node autoscaler was detected: " + sign
}
