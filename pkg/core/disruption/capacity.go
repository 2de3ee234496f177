package disruption

import (
	"slices"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Node is the capacity of one node.
type Node struct {
	Name        string
	Allocatable resources.List // total for pods
	// Fixed is the part of Allocatable for DaemonSet and static pods, as on every node of this
	// type.
	Fixed       resources.List
	Free        resources.List // unreserved capacity; may be negative
	AcceptsPods bool           // accepts new pods
	// FollowsPods marks a virtual or single-pod node. The node is resized with its pods: a pod that
	// grows or is replaced gets a node of its new size.
	FollowsPods bool
}

// Quota is the remainder of one ResourceQuota. Kinds that it does not limit are absent.
type Quota struct {
	Requests, Limits resources.List
	Scopes           []ScopeRule
}

// Capacity is the free capacity of the nodes and quotas of a cluster. In the zero value everything
// fits.
//
// CheckResize checks whether a pod can grow on its node, CheckPlacement whether the replacement of
// an evicted pod finds a node, both within the quotas that cover the pod. Reserve subtracts the
// need of a change, so that no room is promised twice. Taints, affinity and other scheduling
// constraints are not checked: a negative result is reliable, a positive one is not.
type Capacity struct {
	nodes      []Node
	at         map[string]int
	quotas     map[string][]Quota
	autoscaled bool
}

// NewCapacity returns the capacity of nodes and of quotas by namespace.
func NewCapacity(nodes []Node, quotas map[string][]Quota) *Capacity {
	r := &Capacity{nodes: nodes, at: make(map[string]int, len(nodes)), quotas: quotas}
	for i, n := range nodes {
		r.at[n.Name] = i
	}
	return r
}

// WithAutoscaling marks that nodes of any size are added for unschedulable pods, and returns r.
func (r *Capacity) WithAutoscaling() *Capacity {
	r.autoscaled = true
	return r
}

// Clone returns an independent copy, or nil for nil.
func (r *Capacity) Clone() *Capacity {
	if r == nil {
		return nil
	}
	c := &Capacity{nodes: slices.Clone(r.nodes), at: r.at, autoscaled: r.autoscaled, quotas: make(map[string][]Quota, len(r.quotas))}
	for namespace, list := range r.quotas {
		c.quotas[namespace] = slices.Clone(list)
	}
	return c
}

// Need is the capacity that a change of one pod needs.
type Need struct {
	Namespace   string
	Traits      PodTraits      // select the quotas that count it
	Node        string         // current node
	NodeBound   bool           // the pod can run on no other node
	Leaves      bool           // the pod must not return to its node
	Starved     bool           // the pod does not work, so its replacement may wait until it is gone
	SizedByVPA  bool           // its template may request less than it has
	Before      resources.List // requests of all containers
	After       resources.List // the same after the change
	NewPod      resources.List // requests of a new pod, with the peak of shared kinds; empty: as After
	LimitGrowth resources.List // growth of the limits; kinds without growth are absent
	Limits      resources.List // limits of the ordinary containers after the change
}

// RoomResult is the result of a capacity check.
type RoomResult uint8

// The results.
const (
	RoomFits      RoomResult = iota
	RoomFull                 // other pods have the room now
	RoomTooLarge             // exceeds the node without fixed pods, for placement every node
	RoomOverQuota            // a ResourceQuota leaves too little
)

// CheckResize reports whether a pod can grow on its node. A change without growth fits.
func (r *Capacity) CheckResize(n Need) RoomResult {
	if !n.grows() && !hasGrowth(n.LimitGrowth) {
		return RoomFits
	}
	if i, known := r.at[n.Node]; known && n.grows() {
		node := r.nodes[i]
		switch {
		case !n.After.Fits(node.maxForPod(n)), node.FollowsPods && !n.growsWithin(node.Free):
			return RoomTooLarge
		case !n.growsWithin(node.Free):
			return RoomFull
		}
	}
	return r.checkQuotas(n, n.growth(), n.LimitGrowth)
}

// FittingFraction returns the part of the growth that fits on node and quotas, in millionths.
func (r *Capacity) FittingFraction(n Need) (part [resources.Kinds]resources.Amount) {
	requests := n.growth()
	for k := range resources.Kind(resources.Kinds) {
		part[k] = policy.FullFraction
		if i, known := r.at[n.Node]; known {
			node := &r.nodes[i]
			part[k] = min(part[k], fittingFraction(k, requests, node.Free))
			if size, counted := node.maxForPod(n).Get(k); counted {
				part[k] = min(part[k], fittingFraction(k, requests, resources.List{}.With(k, size-n.Before.Value(k))))
			}
		}
		for _, q := range r.quotas[n.Namespace] {
			if !q.counts(n) {
				continue
			}
			part[k] = min(part[k], fittingFraction(k, requests, q.Requests), fittingFraction(k, n.LimitGrowth, q.Limits))
		}
	}
	return part
}

// fittingFraction returns the part of more that free covers, in millionths; all if not limited.
func fittingFraction(k resources.Kind, more, free resources.List) resources.Amount {
	left, counted := free.Get(k)
	if !counted || more.Value(k) <= 0 || left >= more.Value(k) {
		return policy.FullFraction
	}
	part, _ := max(left, 0).Proportion(policy.FullFraction, more.Value(k))
	return part
}

// CheckPlacement reports whether the replacement of an evicted pod finds a node. The node of the
// evicted pod counts as if the pod were gone. Quotas must cover the whole new pod while the old one
// still counts, because the webhook would otherwise reduce it.
//
// With autoscaled, future nodes count as well: one existing node that is large enough suffices. A
// pod on a node with FollowsPods always gets a node. After WithAutoscaling there is a node for any
// pod that is not bound to its node.
//
// The node of a pod that leaves it does not count. Future nodes then count only if the current node
// has no room for the replacement, because otherwise no node would be added for it.
func (r *Capacity) CheckPlacement(n Need, autoscaled bool) RoomResult {
	n = n.asNewPod()
	requests, limits := n.quotaDemand()
	if answer := r.checkQuotas(n, requests, limits); answer != RoomFits {
		return answer
	}
	if len(r.nodes) == 0 {
		return RoomFits
	}
	i, known := r.at[n.Node]
	if known && r.nodes[i].FollowsPods {
		return RoomFits
	}
	back := known && r.nodes[i].fitsReplacement(n)
	if back && !n.Leaves {
		return RoomFits
	}
	added := !n.NodeBound && (!n.Leaves || !back)
	if r.autoscaled && added {
		return RoomFits
	}
	if n.NodeBound && !known {
		return RoomFits
	}
	return r.checkNodes(n, autoscaled && added)
}

// checkNodes looks for another node with room. With futureNodes, any node that is large enough
// suffices, even if it is full.
func (r *Capacity) checkNodes(n Need, futureNodes bool) RoomResult {
	answer := RoomTooLarge
	for i := range r.nodes {
		node := &r.nodes[i]
		switch {
		case n.NodeBound && node.Name != n.Node, !n.After.Fits(node.maxForPod(n)):
		case futureNodes, node.AcceptsPods && node.Name != n.Node && n.After.Fits(node.Free):
			return RoomFits
		default:
			answer = RoomFull
		}
	}
	return answer
}

// fitsReplacement also accepts pods bound to the node, such as DaemonSet pods, on a closed node.
func (node *Node) fitsReplacement(n Need) bool {
	return (node.AcceptsPods || n.NodeBound) && n.After.Fits(node.maxForPod(n)) && n.growsWithin(node.Free)
}

func (node *Node) maxForPod(n Need) resources.List {
	offered := subtract(node.Allocatable, node.Fixed)
	if n.NodeBound && n.Node == node.Name { // the pod is one of the fixed pods itself
		offered = subtract(node.Allocatable, subtract(node.Fixed, n.Before))
	}
	return offered
}

// Reserve subtracts the need of a change from the node of the pod, or for an eviction from the node
// that CheckPlacement found.
func (r *Capacity) Reserve(n Need, evicted bool) {
	requests, limits := n.growth(), n.LimitGrowth
	if evicted {
		n = n.asNewPod()
		requests, limits = n.quotaDemand()
	}
	for i := range r.quotas[n.Namespace] {
		q := &r.quotas[n.Namespace][i]
		if !q.counts(n) {
			continue
		}
		q.Requests, q.Limits = subtract(q.Requests, requests), subtract(q.Limits, limits)
	}
	i, known := r.at[n.Node]
	switch {
	case known && evicted && r.nodes[i].FollowsPods: // the replacement gets a new node
	case known && (!evicted || !n.Leaves && (n.NodeBound || r.nodes[i].fitsReplacement(n))):
		r.nodes[i].Free = subtract(r.nodes[i].Free, n.growth())
	case evicted:
		for i := range r.nodes {
			if node := &r.nodes[i]; node.AcceptsPods && node.Name != n.Node && n.After.Fits(node.Free) {
				node.Free = subtract(node.Free, n.After)
				return
			}
		}
	}
}

func (q *Quota) counts(n Need) bool { return ScopesCover(q.Scopes, n.Traits) }

func (r *Capacity) checkQuotas(n Need, requests, limits resources.List) RoomResult {
	for _, q := range r.quotas[n.Namespace] {
		if !q.counts(n) {
			continue
		}
		if !growthFits(requests, q.Requests) || !growthFits(limits, q.Limits) {
			return RoomOverQuota
		}
	}
	return RoomFits
}

func (n Need) asNewPod() Need {
	if !n.NewPod.Empty() {
		n.After = n.NewPod
	}
	return n
}

func (n Need) growth() (by resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if more := n.After.Value(k) - n.Before.Value(k); more > 0 {
			by = by.With(k, more)
		}
	}
	return by
}

// quotaDemand returns the quota demand of the replacement of an evicted pod. It is the whole pod,
// including unchanged kinds, because the old pod still counts and the webhook reduces a pod that
// exceeds a quota. StatefulSets and DaemonSets wait until the old pod is gone, but quota usage is
// updated only later.
//
// A pod that only shrinks is created after the old one is gone, and must not be blocked because it
// frees room. This holds only if the pod has the resources of its template. Otherwise the webhook
// may reduce it to the template, below its target. A starved pod has nothing to lose, so only its
// growth counts.
func (n Need) quotaDemand() (requests, limits resources.List) {
	switch {
	case n.Starved:
		return n.growth(), n.LimitGrowth
	case !n.SizedByVPA && !n.grows() && !hasGrowth(n.LimitGrowth):
		return requests, limits
	}
	for k := range resources.Kind(resources.Kinds) {
		limits = limits.With(k, max(n.LimitGrowth.Value(k), n.Limits.Value(k)))
	}
	return n.After, limits
}

func (n Need) grows() bool { return !n.growth().Empty() }

func (n Need) growsWithin(free resources.List) bool { return growthFits(n.growth(), free) }

func hasGrowth(more resources.List) bool {
	return more.Value(resources.CPU) > 0 || more.Value(resources.Memory) > 0
}

// growthFits reports whether the growth fits into free. Kinds that are not limited fit.
func growthFits(more, free resources.List) bool {
	for k := range resources.Kind(resources.Kinds) {
		if left, counted := free.Get(k); counted && more.Value(k) > 0 && more.Value(k) > left {
			return false
		}
	}
	return true
}

func subtract(r, by resources.List) resources.List {
	for k := range resources.Kind(resources.Kinds) {
		if left, counted := r.Get(k); counted && by.Value(k) > 0 {
			r = r.With(k, left-by.Value(k))
		}
	}
	return r
}

// ScopeName is a quota scope of the Kubernetes API.
type ScopeName string

// The scopes for pods.
const (
	ScopeTerminating               ScopeName = "Terminating"    // pods with a deadline
	ScopeNotTerminating            ScopeName = "NotTerminating" // pods without a deadline
	ScopeBestEffort                ScopeName = "BestEffort"     // pods without requests and limits
	ScopeNotBestEffort             ScopeName = "NotBestEffort"
	ScopePriorityClass             ScopeName = "PriorityClass"
	ScopeCrossNamespacePodAffinity ScopeName = "CrossNamespacePodAffinity" // pods with affinity terms for other namespaces
)

// ScopeOperator is how a ScopeRule compares the priority class of a pod with its values.
type ScopeOperator string

// The operators. All scopes except PriorityClass use Exists.
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

// PodTraits are the pod properties that scopes depend on.
type PodTraits struct {
	BestEffort     bool   // has neither requests nor limits
	Terminating    bool   // has a deadline
	CrossNamespace bool   // has affinity terms for other namespaces
	Class          string // priority class; empty: none
}

// ScopesCover reports whether all scopes of a quota cover the pod, so that the quota counts it. An
// unknown scope covers no pod: an overlooked quota may refuse a change, which is retried, but a
// quota that is wrongly applied would block the pod forever.
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
		return r.matchesClass(t.Class)
	case ScopeCrossNamespacePodAffinity:
		return t.CrossNamespace
	}
	return false
}

// matchesClass reports whether the rule selects a class. A pod without a class is in no list.
func (r ScopeRule) matchesClass(class string) bool {
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
