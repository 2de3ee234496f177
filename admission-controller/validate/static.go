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

// Surroundings is what is known around one VPA. What is not known is left out.
type Surroundings struct {
	Target string // why the target has no pods; empty: it has some
	// Template is the pod template of the target; nil: not known.
	Template *corev1.PodSpec
	Others   []*vpav1.VerticalPodAutoscaler
	Scaled   []Scaled
	// Largest is the most that any node has of each kind; absent: not known.
	Largest resources.List
}

// Scaled is a HorizontalPodAutoscaler on the target of the VPA.
type Scaled struct {
	Name   string
	Looked sizing.LookedAt // the resources whose requests change what it does
}

// Bounds of advice: an API server shows 4 KiB of warnings.
const (
	mostNamed  = 5  // objects of a kind that stand in the way
	mostAdvice = 20 // warnings, from which on no more policies are looked at
)

// Advise returns a warning for each thing about a VPA that is probably not meant.
// Where there are many of a kind, the first of them suffice.
func Advise(vpa *vpav1.VerticalPodAutoscaler, v Surroundings) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	key := target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	if v.Target != "" {
		warn("spec.targetRef: %s: there is nothing to recommend for until it has pods", v.Target)
	}
	for _, other := range v.Others[:min(len(v.Others), mostNamed)] {
		warn("spec.targetRef: VerticalPodAutoscaler %s has the same target, %s: only one of them can control its pods; delete one, or let it have another target", other.Name, key)
	}
	rules := convert.Rules(vpa)
	if convert.Mode(vpa) != vpav1.UpdateModeOff {
		for _, hpa := range v.Scaled[:min(len(v.Scaled), mostNamed)] {
			for k, both := range hpa.Looked.Against(rules) {
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
		if len(warnings) >= mostAdvice {
			break
		}
		if problem := convert.UnknownContainer(vpa, p.ContainerName, key.String(), v.Template); problem != "" {
			warn("spec.resourcePolicy.containerPolicies[%d].containerName: %s", i, problem)
		}
		least, most := convert.Resources(p.MinAllowed), convert.Resources(p.MaxAllowed)
		for k := range resources.Kind(resources.Kinds) {
			largest, known := v.Largest.Get(k)
			if !known {
				continue
			}
			at, has := fmt.Sprintf("spec.resourcePolicy.containerPolicies[%d]", i), convert.Quantity(k, largest)
			switch {
			case least.Value(k) > largest:
				warn("%s.minAllowed[%s]: no node can hold it: the largest has %s, so the pods would stay pending", at, k, has.String())
			case most.Value(k) > largest:
				warn("%s.maxAllowed[%s]: no node can hold it: the largest has %s, so pods that need more would stay pending", at, k, has.String())
			}
		}
	}
	return warnings
}
