package validate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"loadline.dev/loadline/pkg/convert"
)

// maxNodeKinds is for how many kinds of nodes static pods are read.
const maxNodeKinds = 50

// rolePrefix begins the labels of nodes for a special purpose, such as the control plane.
const rolePrefix = "node-role.kubernetes.io/"

// reserveForStaticPods takes the requests of static pods off the allocatable resources of nodes. It reads the
// pods of one node of each kind: the others of that kind have the same.
func (c *Cluster) reserveForStaticPods(ctx context.Context, nodes []corev1.Node) error {
	reserved := map[string]corev1.ResourceList{}
	for i := range nodes {
		node := &nodes[i]
		kind := kindOf(node)
		taken, known := reserved[kind]
		if !known && len(reserved) < maxNodeKinds && !convert.FollowsPods(node) {
			var err error
			if taken, err = c.staticPods(ctx, node.Name); err != nil {
				return err
			}
			reserved[kind] = taken
		}
		node.Status.Allocatable = node.Status.Allocatable.DeepCopy()
		for name, q := range taken {
			if left, counted := node.Status.Allocatable[name]; counted {
				left.Sub(q)
				node.Status.Allocatable[name] = left
			}
		}
	}
	return nil
}

// kindOf returns what nodes of one kind have in common: size, instance type, roles and taints.
func kindOf(node *corev1.Node) string {
	parts := []string{node.Labels[corev1.LabelInstanceTypeStable], node.Status.Allocatable.Cpu().String(), node.Status.Allocatable.Memory().String()}
	var special []string
	for label := range node.Labels {
		if strings.HasPrefix(label, rolePrefix) {
			special = append(special, label)
		}
	}
	for _, t := range node.Spec.Taints {
		special = append(special, t.Key+"="+t.Value)
	}
	slices.Sort(special)
	return strings.Join(append(parts, special...), " ")
}

// staticPods returns what the static pods of a node request.
func (c *Cluster) staticPods(ctx context.Context, node string) (corev1.ResourceList, error) {
	taken := corev1.ResourceList{}
	selector := fields.OneTermEqualSelector("spec.nodeName", node).String()
	err := pages(func(o metav1.ListOptions) (string, error) {
		o.FieldSelector, o.Limit = selector, podsPage
		page, err := c.Kube.CoreV1().Pods("").List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			pod := &page.Items[i]
			if pod.Spec.NodeName != node || !convert.IsStatic(pod) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
				continue
			}
			for name, q := range convert.Written(convert.Footprint(pod)) {
				sum := taken[name]
				sum.Add(q)
				taken[name] = sum
			}
		}
		return page.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	return taken, nil
}
