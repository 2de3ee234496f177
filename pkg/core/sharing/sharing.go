// Package sharing says how what a node has left is shared by the pods on it.
//
// Pods of one node seldom peak together. Each has a base, which it uses nearly always, and a peak, which it uses at
// times; what is between the two is its headroom. Sized one by one each pod keeps its own headroom; Shares keeps one
// for the whole node, and gives each container its base and its part of that. Where not even that fits, it names the
// pods that leave.
//
// It neither knows where base and peak come from (the recipes do, as the lower bound and the
// target) nor how a share gets to a pod.
package sharing

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Pooling is the size of the headroom that a node keeps for all containers on it.
type Pooling uint8

const (
	// Largest is the headroom of the container that has the largest one, as CruiseKube
	// pools: two that peak together find too little.
	Largest Pooling = iota
	// Root is the root of the sum of the squares of all headrooms: what independent peaks
	// come to. It is at least the largest and at most the sum.
	Root
)

// Rule is how the pods of a node share.
type Rule struct {
	Pooling Pooling
	// LeaveAt is the part of the node's own CPU, 0 to 1, that must have been in use for a pod to leave; nothing else
	// makes one leave but bases that do not fit. 0 = a pod leaves as soon as the bases and the headroom do not fit.
	LeaveAt float64
	// Stay keeps all pods where they are.
	Stay bool
}

// Amounts are millicores and bytes, with fractions; neither negative nor infinite.
type Amounts [resources.Kinds]float64

// Container is one that shares.
type Container struct {
	Name       string
	Base, Peak Amounts // a peak below the base counts as the base
}

// headroom returns what a container has above its base at times.
func (c *Container) headroom(k resources.Kind) float64 { return max(c.Peak[k]-c.Base[k], 0) }

// Pod is a pod whose containers share.
type Pod struct {
	Name       string // with the namespace
	Rank       Rank
	Daemon     bool    // it belongs to the node and never leaves
	Init       Amounts // the largest request of an init container: the pod takes no less
	Containers []Container
}

// staysAnyway reports whether a pod never leaves.
func (p *Pod) staysAnyway() bool { return p.Daemon || p.Rank == Never }

// total returns what a pod takes without headroom.
func (p *Pod) total(k resources.Kind) float64 {
	sum := 0.0
	for i := range p.Containers {
		sum += p.Containers[i].Base[k]
	}
	return max(sum, p.Init[k])
}

// largest returns the largest headroom of a container of the pod.
func (p *Pod) largest(k resources.Kind) float64 {
	most := 0.0
	for i := range p.Containers {
		most = max(most, p.Containers[i].headroom(k))
	}
	return most
}

// Within returns a pod whose containers have no base and no peak above most, as no pod can have
// more than its node. It leaves p as it is.
func (p *Pod) Within(most Amounts) Pod {
	cut, copied := *p, false
	for i := range p.Containers {
		for k := range most {
			if p.Containers[i].Base[k] <= most[k] && p.Containers[i].Peak[k] <= most[k] {
				continue
			}
			if !copied {
				cut.Containers, copied = slices.Clone(p.Containers), true
			}
			c := &cut.Containers[i]
			c.Base[k], c.Peak[k] = min(c.Base[k], most[k]), min(c.Peak[k], most[k])
		}
	}
	return cut
}

// Node is a node and the pods on it that share.
type Node struct {
	Kinds     [resources.Kinds]bool // that are shared
	Available Amounts               // what the node can give without the requests of pods that do not share
	Used      float64               // part of the node's CPU, 0 to 1, that was in use lately; only Rule.LeaveAt looks at it
	Pods      []Pod
}

// Result is what the containers of a node get. A kind that is not shared has no share.
type Result struct {
	Shares   [][]Amounts // by pod and container, in their order; nil for a pod that leaves
	Leaves   []int       // pods that leave, in this order
	Headroom Amounts     // what all together have above their bases
	// Overcommitted are the kinds of which the bases alone are more than there is. Then
	// shares are the bases, and nobody should be given more than it has.
	Overcommitted [resources.Kinds]bool
}

// fits leaves room for the error of sums, so that what fits exactly fits.
const fits = 1 + 1e-9

// Shares returns what each container of a node gets: its base, and of the headroom of the node as much as its own
// headroom is of all. Base ≤ share ≤ peak holds, and the shares are together at most the bases and the headroom. Memory
// is looked at first; CPU is shared by those who stay then. Equal input gives equal bytes, whatever the order of the
// pods, whose names must differ. A node that gets what Shares returned gets the same again.
func Shares(n *Node, r Rule) Result {
	stay := make([]int, len(n.Pods))
	for i := range stay {
		stay[i] = i
	}
	slices.SortFunc(stay, func(a, b int) int { return cmp.Compare(n.Pods[a].Name, n.Pods[b].Name) })
	var result Result
	for _, k := range [...]resources.Kind{resources.Memory, resources.CPU} {
		if n.Kinds[k] {
			stay = n.leave(k, r, stay, &result)
		}
	}
	result.Shares = n.noShares(stay)
	for k := range resources.Kind(resources.Kinds) {
		if n.Kinds[k] {
			n.divide(k, r, stay, &result)
		}
	}
	return result
}

// noShares returns shares of nothing for the containers of those who stay, in one piece of memory.
func (n *Node) noShares(stay []int) [][]Amounts {
	containers := 0
	for _, i := range stay {
		containers += len(n.Pods[i].Containers)
	}
	shares, all := make([][]Amounts, len(n.Pods)), make([]Amounts, containers)
	for _, i := range stay {
		own := len(n.Pods[i].Containers)
		shares[i], all = all[:own:own], all[own:]
	}
	return shares
}

// leave takes pods away until the others fit, or as many as may leave. It reuses stay.
func (n *Node) leave(k resources.Kind, r Rule, stay []int, result *Result) []int {
	if r.Stay || n.has(k, r, stay) {
		return stay
	}
	first := slices.Clone(stay)
	slices.SortStableFunc(first, func(a, b int) int { // stay is in the order of names
		x, y := &n.Pods[a], &n.Pods[b]
		return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(y.largest(k), x.largest(k)))
	})
	hot := n.hot(k, r)
	for _, i := range first {
		if n.Pods[i].staysAnyway() {
			continue
		}
		at := slices.Index(stay, i)
		stay = slices.Delete(stay, at, at+1)
		result.Leaves = append(result.Leaves, i)
		if hot { // one at a time: what is in use without it is not known yet
			r.LeaveAt, hot = math.Inf(1), false
		}
		if n.has(k, r, stay) {
			break
		}
	}
	return stay
}

// hot reports whether so much of a node's CPU was in use that a pod must leave for that.
func (n *Node) hot(k resources.Kind, r Rule) bool {
	return k == resources.CPU && r.LeaveAt > 0 && n.Used > r.LeaveAt
}

// has reports whether a node has room enough of a kind that nobody must leave.
func (n *Node) has(k resources.Kind, r Rule, stay []int) bool {
	pooled := 0.0
	if r.LeaveAt == 0 {
		pooled = n.pooled(k, r, stay)
	}
	return !n.hot(k, r) && n.holds(k, n.sum(k, stay)+pooled)
}

// holds reports whether a node can give so much of a kind.
func (n *Node) holds(k resources.Kind, amount float64) bool { return amount <= n.Available[k]*fits }

// Holds reports whether a node could give a pod its bases of all kinds that are shared, if the pod
// were alone among those who share. One for which it could not would take all from the others.
func (n *Node) Holds(p *Pod) bool {
	for k, shared := range n.Kinds {
		if shared && !n.holds(resources.Kind(k), p.total(resources.Kind(k))) {
			return false
		}
	}
	return true
}

// Spare returns what the node has beyond the bases of its pods; negative, if these alone are more.
func (n *Node) Spare() (left Amounts) {
	for k := range left {
		left[k] = n.Available[k]
		for i := range n.Pods {
			left[k] -= n.Pods[i].total(resources.Kind(k))
		}
	}
	return left
}

// sum returns what pods take without headroom.
func (n *Node) sum(k resources.Kind, of []int) float64 {
	sum := 0.0
	for _, i := range of {
		sum += n.Pods[i].total(k)
	}
	return sum
}

// pooled returns the headroom of some pods together.
func (n *Node) pooled(k resources.Kind, r Rule, of []int) float64 {
	largest, squares := 0.0, 0.0
	for _, i := range of {
		for c := range n.Pods[i].Containers {
			h := n.Pods[i].Containers[c].headroom(k)
			largest, squares = max(largest, h), squares+h*h
		}
	}
	if r.Pooling == Root {
		return max(math.Sqrt(squares), largest)
	}
	return largest
}

// divide gives those who stay their shares.
func (n *Node) divide(k resources.Kind, r Rule, stay []int, result *Result) {
	sum, total := n.sum(k, stay), 0.0
	for _, i := range stay {
		for c := range n.Pods[i].Containers {
			total += n.Pods[i].Containers[c].headroom(k)
		}
	}
	pooled := n.pooled(k, r, stay)
	if !n.holds(k, sum+pooled) {
		pooled = max(n.Available[k]-sum, 0)
	}
	result.Overcommitted[k] = len(stay) > 0 && !n.holds(k, sum)
	result.Headroom[k] = pooled
	for _, i := range stay {
		for c := range n.Pods[i].Containers {
			own := &n.Pods[i].Containers[c]
			share := own.Base[k]
			if total > 0 {
				share += pooled * own.headroom(k) / total
			}
			result.Shares[i][c][k] = min(share, max(own.Base[k], own.Peak[k])) // or rounding makes it more
		}
	}
}
