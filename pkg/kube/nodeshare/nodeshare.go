// Package nodeshare turns a node, the pods on it and what is recommended for each of them into
// what sharing.Shares works on.
//
// A VPA is what a VPA, its SizingPolicy and its workload say. Read reads a pod of it: what the pod
// takes of its node, what its containers would share, or why it does not share. A Node gathers its
// pods into a sharing.Node and the rule for it. The updater's rounds and kubectl loadline explain
// both ask here, so that they say the same.
//
// It calls no API, and does not find out which VPA controls a pod.
package nodeshare

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Node is what counts of a node. Kubelets write much more of it every few minutes.
type Node struct {
	Allocatable    resources.List
	GPUs, Cordoned bool
	Problem        NodeProblem // why nothing could be changed there, whatever policies say; empty: nothing is in the way
}

// NodeProblem is why no pod of a node could share.
type NodeProblem string

// The problems.
const (
	KubeletTooOld      NodeProblem = "KubeletTooOld"      // it cannot resize pods, or its version is not known
	AllocatableUnknown NodeProblem = "AllocatableUnknown" // it does not say what it can hold
)

// leastKubelet is the first version of a kubelet that resizes pods in place.
var leastKubelet = version.MajorMinor(1, 33)

// NodeOf returns what counts of a node.
func NodeOf(node *corev1.Node) Node {
	n := Node{Allocatable: convert.Resources(node.Status.Allocatable), GPUs: hasGPUs(node), Cordoned: node.Spec.Unschedulable}
	kubelet, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
	switch {
	case n.Allocatable.Value(resources.CPU) <= 0 || n.Allocatable.Value(resources.Memory) <= 0:
		n.Problem = AllocatableUnknown
	case err != nil || kubelet.LessThan(leastKubelet):
		n.Problem = KubeletTooOld
	}
	return n
}

// hasGPUs reports whether a node has GPUs.
func hasGPUs(node *corev1.Node) bool {
	for name, amount := range node.Status.Allocatable {
		if convert.IsGPU(name) && !amount.IsZero() {
			return true
		}
	}
	return false
}

// Gather returns what the pods of a node share, by which rule, and which these are, in the order
// of the given ones, but for those Beside. Pods that are too large are set apart, until all others
// fit one by one: what they request leaves less.
func (n *Node) Gather(pods []*Pod) (*sharing.Node, sharing.Rule, []*Pod) {
	for _, p := range pods {
		p.Large = p.Large && p.Beside
	}
	for {
		input, rule, members := n.sharing(pods)
		found := false
		for i, p := range members {
			p.Large = n.Problem != AllocatableUnknown && !input.Holds(&p.Sharing)
			found = found || p.Large
			input.Pods[i] = p.Sharing.Within(n.amounts())
		}
		if !found {
			return input, rule, members
		}
	}
}

// sharing returns who shares if nobody else is too large. Where their recipes differ the more
// careful rule counts. A kind that a pod does not share counts in full. What the kubelet will
// refuse does not count.
func (n *Node) sharing(pods []*Pod) (*sharing.Node, sharing.Rule, []*Pod) {
	input, rule := &sharing.Node{Available: n.amounts(), Pods: make([]sharing.Pod, 0, len(pods))}, sharing.Rule{Stay: true}
	members := make([]*Pod, 0, len(pods))
	for _, p := range pods {
		if p.New && n.refuses(p) {
			continue
		}
		if p.Why() != "" || p.Beside {
			for k := range resources.Kind(resources.Kinds) {
				input.Available[k] -= float64(p.Takes.Value(k))
			}
			continue
		}
		for k, shared := range p.Of.Settings.Kinds {
			input.Kinds[k] = input.Kinds[k] || shared
		}
		rule.Pooling = max(rule.Pooling, p.Of.Rule.Pooling)
		rule.LeaveAt = max(rule.LeaveAt, p.Of.Rule.LeaveAt)
		rule.Stay = rule.Stay && !p.Of.Settings.Evict
		members, input.Pods = append(members, p), append(input.Pods, p.Sharing)
	}
	return input, rule, members
}

// amounts returns what a node has for pods.
func (n *Node) amounts() (has sharing.Amounts) {
	for k := range resources.Kind(resources.Kinds) {
		has[k] = float64(n.Allocatable.Value(k))
	}
	return has
}

// refuses reports whether a pod requests more than the node has, so that its kubelet will not
// accept it. Anybody can bind such a pod to a node.
func (n *Node) refuses(p *Pod) bool {
	for k := range resources.Kind(resources.Kinds) {
		if most := n.Allocatable.Value(k); most > 0 && p.Takes.Value(k) > most {
			return true
		}
	}
	return false
}
