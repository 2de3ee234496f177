package validate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

const maxNodeKinds = 50

const rolePrefix = "node-role.kubernetes.io/"

// reserveForStaticPods subtracts the requests of static pods from the allocatable resources of
// nodes. It reads the pods of one node of each kind and assumes the same for the others.
func (c *Cluster) reserveForStaticPods(ctx context.Context, nodes []corev1.Node) error {
	reserved := map[string]corev1.ResourceList{}
	for i := range nodes {
		node := &nodes[i]
		kind := kindOf(node)
		taken, known := reserved[kind]
		if !known && len(reserved) < maxNodeKinds && !convert.IsVirtualNode(node) {
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

// kindOf returns the common properties of nodes: resources, instance type, roles and taints.
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

func (c *Cluster) staticPods(ctx context.Context, node string) (corev1.ResourceList, error) {
	taken := corev1.ResourceList{}
	selector := fields.OneTermEqualSelector("spec.nodeName", node).String()
	err := listPages(func(o metav1.ListOptions) (string, error) {
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
			for name, q := range convert.FormatLike(convert.Footprint(pod)) {
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

// ClusterView holds the known cluster state around one VPA. Unknown parts are empty.
type ClusterView struct {
	PodlessReason string // why the target has no pods, empty: it has some
	// Template is the pod template of the target, nil if unknown.
	Template   *corev1.PodSpec
	SameTarget []*vpav1.VerticalPodAutoscaler
	HPAs       []ScalingHPA
	// Largest holds the maximum of each kind over all nodes. Unknown kinds are absent.
	Largest resources.List
}

// ScalingHPA is a HorizontalPodAutoscaler on the target of the VPA.
type ScalingHPA struct {
	Name      string
	Resources sizing.HPAResources // with requests that influence its scaling
}

// Bounds of advice: an API server shows 4 KiB of warnings.
const (
	maxNamed  = 5  // conflicting objects of each kind
	maxAdvice = 20 // warnings that end the check of policies
)

// Advise returns a warning for each probable mistake in a VPA. The number of warnings is bounded.
func Advise(vpa *vpav1.VerticalPodAutoscaler, v ClusterView) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	key := target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	if v.PodlessReason != "" {
		warn("spec.targetRef: %s: there is nothing to recommend for until it has pods", v.PodlessReason)
	}
	for _, other := range v.SameTarget[:min(len(v.SameTarget), maxNamed)] {
		warn("spec.targetRef: VerticalPodAutoscaler %s has the same target, %s: only one of them can control its pods; delete one, or let it have another target", other.Name, key)
	}
	rules := convert.Rules(vpa)
	if convert.Mode(vpa) != vpav1.UpdateModeOff {
		for _, hpa := range v.HPAs[:min(len(v.HPAs), maxNamed)] {
			for k, both := range hpa.Resources.Conflicts(rules) {
				if k := resources.Kind(k); both {
					warn("spec.targetRef: HorizontalPodAutoscaler %s scales %s on %s: the two can work against each other; leave %s out of controlledResources, or scale on something else", hpa.Name, key, k, k)
				}
			}
		}
	}
	if vpa.Spec.ResourcePolicy == nil {
		return warnings
	}
	for i, p := range vpa.Spec.ResourcePolicy.ContainerPolicies {
		if len(warnings) >= maxAdvice {
			break
		}
		if problem := convert.UnknownContainer(vpa, p.ContainerName, key.String(), v.Template); problem != "" {
			warn("spec.resourcePolicy.containerPolicies[%d].containerName: %s", i, problem)
		}
		minimum, maximum := convert.Resources(p.MinAllowed), convert.Resources(p.MaxAllowed)
		for k := range resources.Kind(resources.Kinds) {
			largest, known := v.Largest.Get(k)
			if !known {
				continue
			}
			at, has := fmt.Sprintf("spec.resourcePolicy.containerPolicies[%d]", i), convert.Quantity(k, largest)
			switch {
			case minimum.Value(k) > largest:
				warn("%s.minAllowed[%s]: no node can hold it: the largest has %s, so the pods would stay pending", at, k, has.String())
			case maximum.Value(k) > largest:
				warn("%s.maxAllowed[%s]: no node can hold it: the largest has %s, so pods that need more would stay pending", at, k, has.String())
			}
		}
	}
	return warnings
}
