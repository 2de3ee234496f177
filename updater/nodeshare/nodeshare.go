// Package nodeshare turns a node, its pods and their recommendations into the input of sharing.Shares.
//
// VPAOf reads a VPA with its SizingPolicy and its workload. VPA.Read reads a pod of it: what it takes of its node, and
// the base and the peak of each container, or why it does not share. Node.Gather turns the pods of a node into the
// input of sharing.Shares.
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

// Node is what counts of a node. Kubelets write much more of it every few minutes.
type Node struct {
	Allocatable    resources.List
	GPUs, Cordoned bool
	Problem        reason.Reason // why nothing could be changed there, whatever policies say; empty: nothing is in the way
}

// NodeOf returns what counts of a node.
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

// Gather returns what the pods of a node share, by which rule, and which these are, in the order
// of the given ones, but for those Beside. Pods that are too large are set apart, until all others
// fit one by one: what they request leaves less.
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

// sharing returns who shares if nobody else is too large. Where their recipes differ the more
// careful rule counts. A kind that a pod does not share counts in full. What the kubelet will
// refuse does not count. Room is made for a resize that waits, but not below the bases of those who
// share: what does not fit beside them is never granted, so they would give it up for nothing.
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

// amounts returns what a node has for pods.
func (n *Node) amounts() (has sharing.Amounts) {
	for k := range resources.Kind(resources.Kinds) {
		has[k] = float64(n.Allocatable.Value(k))
	}
	return has
}

// refuse notes which new pods the kubelet will not accept, as they do not fit beside what it has
// granted to others. Anybody can bind such a pod to a node.
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

// takes takes from what a node has left what a pod has been granted.
func (p *Pod) takes(left *sharing.Amounts) {
	for k := range resources.Kind(resources.Kinds) {
		left[k] -= float64(p.Takes.Value(k) - p.Waiting.Value(k))
	}
}

// limits returns amounts of the kinds of which it is known how much the node has.
func (n *Node) limits(of sharing.Amounts) (most resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if n.Allocatable.Value(k) > 0 {
			most = most.With(k, resources.Amount(math.Floor(of[k])))
		}
	}
	return most
}
