// Package nodefit finds the largest node that a new pod can run on.
//
// Summarize reduces all nodes to Nodes. Nodes.Largest takes the requests of a pod and its
// Placement, and returns the room of the node that fits the largest part of them. It is not a
// scheduler: it ignores pods on the nodes, pod affinity and volumes. It can therefore prove that no
// node is large enough, but not that a pod fits.
package nodefit

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
)

// Placement is the part of a pod spec that restricts its nodes.
type Placement struct {
	NodeName     string              `json:"nodeName"`
	Scheduler    string              `json:"schedulerName"`
	NodeSelector map[string]string   `json:"nodeSelector"`
	Affinity     *corev1.Affinity    `json:"affinity"`
	Tolerations  []corev1.Toleration `json:"tolerations"`
}

// DaemonSet is a DaemonSet with the node resources that its pods reserve.
type DaemonSet struct {
	Namespace, Name string
	Requests        resources.List
	Placement       Placement
}

// Nodes are the nodes of a cluster. The zero value has none.
type Nodes struct {
	nodes   []node
	daemons []DaemonSet
	minRoom resources.List // minimum of all nodes
}

type node struct {
	name     string
	size     resources.List
	reserved resources.List // by DaemonSet pods and static pods
	virtual  bool           // capacity follows the pods, see Largest
	labels   map[string]string
	taints   []corev1.Taint
}

// maxNodes bounds the cost per pod. Larger clusters are not checked.
const maxNodes = 1000

// maxReserved caps the fraction of a node that DaemonSet pods and static pods reserve.
const maxReserved = 0.5

// Summarize returns the relevant properties of at most maxNodes nodes.
func Summarize(all []corev1.Node, daemons []DaemonSet) *Nodes {
	n := &Nodes{daemons: daemons}
	if len(all) > maxNodes {
		return n
	}
	for i := range all {
		if !convert.IsSinglePod(&all[i]) {
			n.nodes = append(n.nodes, summarize(&all[i], daemons))
		}
	}
	for i := range n.nodes {
		if n.nodes[i].virtual {
			continue
		}
		room := n.nodes[i].room(nil)
		for k := range resources.Kind(resources.Kinds) {
			if least, known := n.minRoom.Get(k); !known || room.Value(k) < least {
				n.minRoom = n.minRoom.With(k, room.Value(k))
			}
		}
	}
	return n
}

func summarize(o *corev1.Node, daemons []DaemonSet) node {
	n := node{name: o.Name, size: convert.Resources(o.Status.Allocatable), labels: maps.Clone(o.Labels), virtual: convert.IsVirtualNode(o)}
	for _, t := range o.Spec.Taints {
		if blocksPods(&t) {
			n.taints = append(n.taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	for i := range daemons {
		if n.accepts(&daemons[i].Placement) {
			n.reserved = n.reserved.Plus(daemons[i].Requests)
		}
	}
	return n
}

// blocksPods ignores temporary taints of Kubernetes and the updater.
func blocksPods(t *corev1.Taint) bool {
	passing := strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/") ||
		strings.HasPrefix(t.Key, "loadline.dev/")
	return !passing && (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute)
}

// FitsEverywhere reports whether every node is large enough, so that Largest is unnecessary.
func (n *Nodes) FitsEverywhere(requests resources.List) bool {
	return n == nil || len(n.nodes) == 0 || requests.Fits(n.minRoom)
}

// Largest returns the room of the candidate node that fits the largest part of the requests. It
// returns false if a node is large enough, or if the nodes are unknown. The function isOwner
// reports whether a DaemonSet is the controller of the pod.
//
// A kubelet can label its own node. So a virtual node counts as unlimited only if a toleration of
// the pod names its taint, or if most candidate nodes are virtual.
func (n *Nodes) Largest(requests resources.List, p *Placement, isOwner func(namespace, name string) bool) (room resources.List, tooLarge bool) {
	if n.FitsEverywhere(requests) || convert.GetsOwnNode(p.Scheduler) {
		return room, false
	}
	var ownReserved resources.List
	for _, d := range n.daemons {
		if isOwner(d.Namespace, d.Name) {
			ownReserved = d.Requests
		}
	}
	best, candidates, virtual := -1.0, 0, 0
	for i := range n.nodes {
		one := &n.nodes[i]
		if !one.accepts(p) {
			continue
		}
		candidates++
		if one.virtual {
			virtual++
		}
		has := one.room(&ownReserved)
		if one.virtual && one.hasToleratedVirtualTaint(p) || requests.Fits(has) {
			return resources.List{}, false
		}
		if part := fittingFraction(requests, has); part > best {
			best, room = part, has
		}
	}
	if 2*virtual > candidates {
		return resources.List{}, false
	}
	return room, best > 0
}

func (n *node) hasToleratedVirtualTaint(p *Placement) bool {
	return slices.ContainsFunc(n.taints, func(taint corev1.Taint) bool {
		return convert.IsVirtualNodeTaint(taint) && slices.ContainsFunc(p.Tolerations, func(t corev1.Toleration) bool { return t.Key == taint.Key })
	})
}

// room returns the resources for a pod, including the part that pods of its own DaemonSet reserve.
func (n *node) room(own *resources.List) resources.List {
	room := n.size
	for k := range resources.Kind(resources.Kinds) {
		if has, known := room.Get(k); known {
			taken := n.reserved.Value(k)
			if own != nil {
				taken = max(taken-own.Value(k), 0)
			}
			room = room.With(k, max(has-taken, resources.Amount(float64(has)*(1-maxReserved))))
		}
	}
	return room
}

func fittingFraction(requests, room resources.List) float64 {
	lowest := 1.0
	for k := range resources.Kind(resources.Kinds) {
		if has, known := room.Get(k); known && requests.Value(k) > 0 {
			lowest = min(lowest, float64(has)/float64(requests.Value(k)))
		}
	}
	return lowest
}

func (n *node) accepts(p *Placement) bool {
	if p.NodeName != "" {
		return p.NodeName == n.name
	}
	for key, value := range p.NodeSelector {
		if has, found := n.labels[key]; !found || has != value {
			return false
		}
	}
	for i := range n.taints {
		if !slices.ContainsFunc(p.Tolerations, func(t corev1.Toleration) bool { return tolerates(&t, &n.taints[i]) }) {
			return false
		}
	}
	if p.Affinity == nil || p.Affinity.NodeAffinity == nil || p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	return slices.ContainsFunc(p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, n.matches)
}

func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	switch {
	case t.Effect != "" && t.Effect != taint.Effect, t.Key != "" && t.Key != taint.Key:
		return false
	case t.Operator == "" || t.Operator == corev1.TolerationOpEqual:
		return t.Value == taint.Value
	}
	return true // includes unknown operators: one node too many is better than one too few
}

func (n *node) matches(term corev1.NodeSelectorTerm) bool {
	if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
		return false
	}
	for _, e := range term.MatchExpressions {
		value, found := n.labels[e.Key]
		if !satisfies(&e, value, found) {
			return false
		}
	}
	for _, e := range term.MatchFields {
		if e.Key == "metadata.name" && !satisfies(&e, n.name, true) {
			return false
		}
	}
	return true
}

func satisfies(e *corev1.NodeSelectorRequirement, value string, found bool) bool {
	switch e.Operator {
	case corev1.NodeSelectorOpIn:
		return found && slices.Contains(e.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !found || !slices.Contains(e.Values, value)
	case corev1.NodeSelectorOpExists:
		return found
	case corev1.NodeSelectorOpDoesNotExist:
		return !found
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		has, err := strconv.ParseInt(value, 10, 64)
		if len(e.Values) != 1 || err != nil || !found {
			return false
		}
		bound, err := strconv.ParseInt(e.Values[0], 10, 64)
		return err == nil && (e.Operator == corev1.NodeSelectorOpGt && has > bound || e.Operator == corev1.NodeSelectorOpLt && has < bound)
	}
	return true // unknown operator: one node too many is better than one too few
}
