package disruption

import (
	"slices"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Node is one node.
type Node struct {
	Name string
	Size resources.List // what pods may have in all
	// Fixed is the part of Size that DaemonSets and static pods take, as they do on each node of its kind.
	Fixed resources.List
	Free  resources.List // what the pods on it leave; may be negative
	Open  bool           // takes new pods
	// FollowsPods marks a virtual or single-pod node. Its size follows its pods, so a pod that grows or
	// is replaced gets a node of its new size.
	FollowsPods bool
}

// Quota is what one ResourceQuota leaves to the pods that its scopes cover. Kinds that it does not count are absent.
type Quota struct {
	Requests, Limits resources.List
	Scopes           []ScopeRule
}

// Capacity is what the nodes and quotas of a cluster have left. The zero value knows of nothing,
// and then everything fits.
//
// Resize asks whether a pod can grow where it is, Place whether a pod that is evicted would find a node; both ask the
// quotas of the namespace that count the pod by their scopes, too. Keep takes what a change will need, so that two pods
// are not promised the same room. It knows nothing of what else binds pods to nodes, such as taints and affinity: it
// can say that there is no room, not that there is.
type Capacity struct {
	nodes  []Node
	at     map[string]int
	quotas map[string][]Quota
	grows  bool // nodes are added
}

// NewCapacity returns the room of nodes and, by namespace, quotas.
func NewCapacity(nodes []Node, quotas map[string][]Quota) *Capacity {
	r := &Capacity{nodes: nodes, at: make(map[string]int, len(nodes)), quotas: quotas}
	for i, n := range nodes {
		r.at[n.Name] = i
	}
	return r
}

// Growing says that nodes of any size are added for pods that find none, and returns the room.
func (r *Capacity) Growing() *Capacity {
	r.grows = true
	return r
}

// Clone returns a copy that can be changed apart; nil of nil.
func (r *Capacity) Clone() *Capacity {
	if r == nil {
		return nil
	}
	c := &Capacity{nodes: slices.Clone(r.nodes), at: r.at, grows: r.grows, quotas: make(map[string][]Quota, len(r.quotas))}
	for namespace, list := range r.quotas {
		c.quotas[namespace] = slices.Clone(list)
	}
	return c
}

// Need is a change of one pod as far as room is concerned.
type Need struct {
	Namespace string
	Traits    PodTraits      // which quotas count it
	Node      string         // where the pod runs
	Bound     bool           // it can run nowhere else
	Leaves    bool           // it is not to come back to its node
	Yields    bool           // it does not work, so that the pod that replaces it may wait until it is gone
	Sized     bool           // its template may ask for less than it has
	Has       resources.List // its requests, of all containers
	Wants     resources.List // its requests after the change
	Back      resources.List // those of a new pod, which has its peak of what it shares; empty: as Wants
	More      resources.List // by how much the limits grow; kinds without are absent
	Limits    resources.List // of the ordinary containers after the change
}

// RoomAnswer is what is in the way of a change.
type RoomAnswer uint8

// The answers.
const (
	RoomFits      RoomAnswer = iota
	RoomFull                 // not now: others have the room
	RoomTooLarge             // never: it is more than the node offers beside DaemonSets and static pods, or for Place any node
	RoomOverQuota            // a ResourceQuota leaves too little
)

// Resize reports whether a pod can grow on its node. What does not grow fits.
func (r *Capacity) Resize(n Need) RoomAnswer {
	if !n.grows() && !anyGrowth(n.More) {
		return RoomFits
	}
	if i, known := r.at[n.Node]; known && n.grows() {
		node := r.nodes[i]
		switch {
		case !n.Wants.Fits(node.offers(n)), node.FollowsPods && !n.growsWithin(node.Free):
			return RoomTooLarge
		case !n.growsWithin(node.Free):
			return RoomFull
		}
	}
	return r.quota(n, n.grown(), n.More)
}

// Part says how much of its growth a pod can have where it is, in millionths for each kind.
func (r *Capacity) Part(n Need) (part [resources.Kinds]resources.Amount) {
	requests := n.grown()
	for k := range resources.Kind(resources.Kinds) {
		part[k] = policy.Whole
		if i, known := r.at[n.Node]; known {
			node := &r.nodes[i]
			part[k] = min(part[k], shareOf(k, requests, node.Free))
			if size, counted := node.offers(n).Get(k); counted {
				part[k] = min(part[k], shareOf(k, requests, resources.List{}.With(k, size-n.Has.Value(k))))
			}
		}
		for _, q := range r.quotas[n.Namespace] {
			if !q.counts(n) {
				continue
			}
			part[k] = min(part[k], shareOf(k, requests, q.Requests), shareOf(k, n.More, q.Limits))
		}
	}
	return part
}

// shareOf says how much of what grows is there, in millionths. A kind that is not counted is there whole.
func shareOf(k resources.Kind, more, free resources.List) resources.Amount {
	left, counted := free.Get(k)
	if !counted || more.Value(k) <= 0 || left >= more.Value(k) {
		return policy.Whole
	}
	part, _ := max(left, 0).Proportion(policy.Whole, more.Value(k))
	return part
}

// Place says whether the pod that replaces an evicted one finds a node. The node of the evicted pod counts as if that
// were gone. Quotas must have room for the whole new pod while the old one still counts: else the webhook would cut it.
// With autoscaled, nodes that are not there yet count as well: then it is enough that some node is as large as the pod.
// A pod on a node that follows its pods always gets a node. In a Capacity that is Growing there is a node for any pod
// that may leave its own.
//
// For a pod that Leaves its own node is none. Nodes that are not there yet count only if that
// would not take it back: else none would be added for it.
func (r *Capacity) Place(n Need, autoscaled bool) RoomAnswer {
	n = n.anew()
	requests, limits := n.replacement()
	if answer := r.quota(n, requests, limits); answer != RoomFits {
		return answer
	}
	if len(r.nodes) == 0 {
		return RoomFits
	}
	i, known := r.at[n.Node]
	if known && r.nodes[i].FollowsPods {
		return RoomFits
	}
	back := known && r.nodes[i].takesBack(n)
	if back && !n.Leaves {
		return RoomFits
	}
	added := !n.Bound && (!n.Leaves || !back)
	if r.grows && added {
		return RoomFits
	}
	answer := RoomTooLarge
	for i := range r.nodes {
		node := &r.nodes[i]
		switch {
		case n.Bound && node.Name != n.Node, !n.Wants.Fits(node.offers(n)):
		case autoscaled && added, node.Open && node.Name != n.Node && n.Wants.Fits(node.Free):
			return RoomFits
		default:
			answer = RoomFull
		}
	}
	if n.Bound && !known {
		return RoomFits
	}
	return answer
}

// takesBack reports whether a pod of the node finds room on it once it is gone. One
// that is bound to it, as a daemon is, comes back to a closed node, too.
func (node *Node) takesBack(n Need) bool {
	return (node.Open || n.Bound) && n.Wants.Fits(node.offers(n)) && n.growsWithin(node.Free)
}

// offers returns the most that a pod can have on a node: all but what is always taken by others.
func (node *Node) offers(n Need) resources.List {
	offered := minus(node.Size, node.Fixed)
	if n.Bound && n.Node == node.Name { // one of those that take it
		offered = minus(node.Size, minus(node.Fixed, n.Has))
	}
	return offered
}

// Keep takes the room that a change needs: on the node of the pod, or for an eviction where Place found it.
func (r *Capacity) Keep(n Need, evicted bool) {
	requests, limits := n.grown(), n.More
	if evicted {
		n = n.anew()
		requests, limits = n.replacement()
	}
	for i := range r.quotas[n.Namespace] {
		q := &r.quotas[n.Namespace][i]
		if !q.counts(n) {
			continue
		}
		q.Requests, q.Limits = minus(q.Requests, requests), minus(q.Limits, limits)
	}
	i, known := r.at[n.Node]
	switch {
	case known && evicted && r.nodes[i].FollowsPods: // the replacement gets a node of its own
	case known && (!evicted || !n.Leaves && (n.Bound || r.nodes[i].takesBack(n))):
		r.nodes[i].Free = minus(r.nodes[i].Free, n.grown())
	case evicted:
		for i := range r.nodes {
			if node := &r.nodes[i]; node.Open && node.Name != n.Node && n.Wants.Fits(node.Free) {
				node.Free = minus(node.Free, n.Wants)
				return
			}
		}
	}
}

func (q *Quota) counts(n Need) bool { return ScopesCover(q.Scopes, n.Traits) }

func (r *Capacity) quota(n Need, requests, limits resources.List) RoomAnswer {
	for _, q := range r.quotas[n.Namespace] {
		if !q.counts(n) {
			continue
		}
		if !moreWithin(requests, q.Requests) || !moreWithin(limits, q.Limits) {
			return RoomOverQuota
		}
	}
	return RoomFits
}

// anew is the change by a new pod.
func (n Need) anew() Need {
	if !n.Back.Empty() {
		n.Wants = n.Back
	}
	return n
}

// grown is by how much the requests grow; kinds that do not are absent.
func (n Need) grown() (by resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if more := n.Wants.Value(k) - n.Has.Value(k); more > 0 {
			by = by.With(k, more)
		}
	}
	return by
}

// replacement is what the pod that replaces an evicted one takes from quotas: all of it while the old one counts as
// well, also of the kinds that stay as they are, since the webhook would cut those, too. That holds for StatefulSets
// and DaemonSets as well: they wait until the old pod is gone, but what quotas say is used follows only later. What
// only shrinks comes in when the old one is gone, and must not be stopped, because it makes room; but only if it has
// what its template asks for. Else the webhook may cut it to that, and it would lose more than it should. A pod that
// does not work has nothing to lose.
func (n Need) replacement() (requests, limits resources.List) {
	switch {
	case n.Yields:
		return n.grown(), n.More
	case !n.Sized && !n.grows() && !anyGrowth(n.More):
		return requests, limits
	}
	for k := range resources.Kind(resources.Kinds) {
		limits = limits.With(k, max(n.More.Value(k), n.Limits.Value(k)))
	}
	return n.Wants, limits
}

func (n Need) grows() bool { return !n.grown().Empty() }

func (n Need) growsWithin(free resources.List) bool { return moreWithin(n.grown(), free) }

func anyGrowth(more resources.List) bool {
	return more.Value(resources.CPU) > 0 || more.Value(resources.Memory) > 0
}

// moreWithin reports whether what grows is there; kinds that are not counted are.
func moreWithin(more, free resources.List) bool {
	for k := range resources.Kind(resources.Kinds) {
		if left, counted := free.Get(k); counted && more.Value(k) > 0 && more.Value(k) > left {
			return false
		}
	}
	return true
}

// minus takes by from the kinds that r counts.
func minus(r, by resources.List) resources.List {
	for k := range resources.Kind(resources.Kinds) {
		if left, counted := r.Get(k); counted && by.Value(k) > 0 {
			r = r.With(k, left-by.Value(k))
		}
	}
	return r
}

// ScopeName is a scope, as the Kubernetes API names it.
type ScopeName string

// The scopes that concern pods.
const (
	ScopeTerminating               ScopeName = "Terminating"    // pods with a deadline
	ScopeNotTerminating            ScopeName = "NotTerminating" // pods without
	ScopeBestEffort                ScopeName = "BestEffort"     // pods without requests and limits
	ScopeNotBestEffort             ScopeName = "NotBestEffort"
	ScopePriorityClass             ScopeName = "PriorityClass"
	ScopeCrossNamespacePodAffinity ScopeName = "CrossNamespacePodAffinity" // pods whose affinity looks into other namespaces
)

// ScopeOperator says how a ScopeRule compares the class of a pod with its values.
type ScopeOperator string

// The operators. Only PriorityClass has others than Exists.
const (
	ScopeIn           ScopeOperator = "In"
	ScopeNotIn        ScopeOperator = "NotIn"
	ScopeExists       ScopeOperator = "Exists"
	ScopeDoesNotExist ScopeOperator = "DoesNotExist"
)

// ScopeRule is one scope of a quota.
type ScopeRule struct {
	Scope    ScopeName
	Operator ScopeOperator
	Values   []string // names of priority classes
}

// PodTraits are the properties of a pod that scopes depend on.
type PodTraits struct {
	BestEffort     bool   // has neither requests nor limits
	Terminating    bool   // has a deadline
	CrossNamespace bool   // its affinity looks into other namespaces
	Class          string // its priority class; empty: none
}

// ScopesCover reports whether a quota counts a pod, which it does if all of its scopes cover the pod. A scope that is
// not known here covers none: a quota that is overlooked may refuse a change, which is tried again, but one that is
// believed to count a pod that it does not count would keep the pod from its size for ever.
func ScopesCover(rules []ScopeRule, t PodTraits) bool {
	return !slices.ContainsFunc(rules, func(r ScopeRule) bool { return !r.covers(t) })
}

func (r ScopeRule) covers(t PodTraits) bool {
	switch r.Scope {
	case ScopeTerminating:
		return t.Terminating
	case ScopeNotTerminating:
		return !t.Terminating
	case ScopeBestEffort:
		return t.BestEffort
	case ScopeNotBestEffort:
		return !t.BestEffort
	case ScopePriorityClass:
		return r.names(t.Class)
	case ScopeCrossNamespacePodAffinity:
		return t.CrossNamespace
	}
	return false // an unknown scope
}

// names reports whether the rule holds for a priority class; a pod without class is in no list of values.
func (r ScopeRule) names(class string) bool {
	listed := class != "" && slices.Contains(r.Values, class)
	switch r.Operator {
	case ScopeIn:
		return listed
	case ScopeNotIn:
		return !listed
	case ScopeExists:
		return class != ""
	case ScopeDoesNotExist:
		return class == ""
	}
	return false
}
