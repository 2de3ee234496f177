// Package nodeshare turns a node, its pods and their recommendations into the input of sharing.Shares.
//
// VPAOf reads a VPA with its SizingPolicy and its workload. VPA.Read reads one of its pods: the resources that it takes
// of its node, and the base and the peak of each container, or the reason why it does not share. Node.Gather turns the
// pods of a node into the input of sharing.Shares.
//
// It calls no API, and does not find out which VPA controls a pod.
package nodeshare

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Node is the part of a node that sharing reads. Kubelets write the rest every few minutes.
type Node struct {
	Allocatable    resources.List
	GPUs, Cordoned bool
	Problem        reason.Reason // why no pod there can be resized; empty: all can
}

// NodeOf converts a node.
func NodeOf(node *corev1.Node) Node {
	n := Node{Allocatable: convert.Resources(node.Status.Allocatable), GPUs: hasGPUs(node), Cordoned: node.Spec.Unschedulable}
	switch {
	case convert.FollowsPods(node):
		n.Problem = reason.SizeFollowsPods
	case n.Allocatable.Value(resources.CPU) <= 0 || n.Allocatable.Value(resources.Memory) <= 0:
		n.Problem = reason.AllocatableUnknown
	case !convert.ResizesPods(node):
		n.Problem = reason.KubeletTooOld
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

// Gather returns the input of sharing.Shares, the rule, and the pods that share in their order, without pods that are
// Beside. It excludes pods that are too large until each of the others fits alone: the requests of an excluded pod
// reduce the available resources.
func (n *Node) Gather(pods []*Pod) (*sharing.Node, sharing.Rule, []*Pod) {
	for _, p := range pods {
		p.Large = p.Large && p.Beside
	}
	n.refuse(pods)
	for {
		input, rule, members := n.sharing(pods)
		found := false
		for i, p := range members {
			p.Large = n.Problem != reason.AllocatableUnknown && !input.Holds(&p.Sharing)
			found = found || p.Large
			input.Pods[i] = p.Sharing.Within(n.amounts())
		}
		if !found {
			return input, rule, members
		}
	}
}

// sharing returns the pods that share if no further pod is too large. If their recipes differ, the more conservative
// rule applies. A kind that a pod does not share counts in full. Pods that the kubelet will refuse do not count. A
// waiting resize reduces the available resources if it fits beside the bases of the pods that share. Otherwise the
// kubelet never grants it, and the pods would give up resources for nothing.
func (n *Node) sharing(pods []*Pod) (*sharing.Node, sharing.Rule, []*Pod) {
	input, rule := &sharing.Node{Available: n.amounts(), Pods: make([]sharing.Pod, 0, len(pods))}, sharing.Rule{Stay: true}
	members := make([]*Pod, 0, len(pods))
	var waiting []convert.Arrival
	for _, p := range pods {
		if p.Accepted = false; p.refused {
			continue
		}
		if p.Why() != "" || p.Beside {
			p.takes(&input.Available)
			if p.Waiting != (resources.List{}) {
				waiting = append(waiting, convert.Arrival{UID: p.UID, Created: p.Created, Takes: p.Waiting})
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
	if len(waiting) == 0 {
		return input, rule, members
	}
	accepted := convert.Accepted(n.limits(input.Spare()), waiting)
	for _, p := range pods {
		p.Accepted = slices.ContainsFunc(accepted, func(a convert.Arrival) bool { return a.UID == p.UID })
	}
	for _, a := range accepted {
		for k := range resources.Kind(resources.Kinds) {
			input.Available[k] -= float64(a.Takes.Value(k))
		}
	}
	return input, rule, members
}

// amounts returns the allocatable amounts.
func (n *Node) amounts() (has sharing.Amounts) {
	for k := range resources.Kind(resources.Kinds) {
		has[k] = float64(n.Allocatable.Value(k))
	}
	return has
}

// refuse marks new pods that the kubelet will refuse, because they do not fit beside the granted resources of other
// pods. Any client with the permission can bind such a pod to a node.
func (n *Node) refuse(pods []*Pod) {
	left := n.amounts()
	var arrivals []convert.Arrival
	for _, p := range pods {
		if p.refused = p.New; p.New {
			arrivals = append(arrivals, convert.Arrival{UID: p.UID, Created: p.Created, Takes: p.Takes})
			continue
		}
		p.takes(&left)
	}
	if len(arrivals) == 0 {
		return
	}
	accepted := map[types.UID]bool{}
	for _, a := range convert.Accepted(n.limits(left), arrivals) {
		accepted[a.UID] = true
	}
	for _, p := range pods {
		p.refused = p.New && !accepted[p.UID]
	}
}

// takes subtracts the granted resources of a pod.
func (p *Pod) takes(left *sharing.Amounts) {
	for k := range resources.Kind(resources.Kinds) {
		left[k] -= float64(p.Takes.Value(k) - p.Waiting.Value(k))
	}
}

// limits returns amounts of the kinds with a known allocatable amount.
func (n *Node) limits(of sharing.Amounts) (most resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if n.Allocatable.Value(k) > 0 {
			most = most.With(k, resources.Amount(math.Floor(of[k])))
		}
	}
	return most
}
