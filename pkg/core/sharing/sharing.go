// Package sharing distributes the headroom of a node over the pods on it.
//
// Each pod has a base, its steady-state demand, and a peak. The difference is its headroom. Pods of
// one node rarely peak together, so Shares keeps one headroom for the whole node and gives each
// container its base plus a part of that headroom. If not even that fits, it selects pods to evict.
// Recipes provide base and peak as lower bound and target.
package sharing

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Pooling is the formula for the common headroom of all containers on a node.
type Pooling uint8

const (
	// LargestHeadroom is the maximum of all headrooms, as in CruiseKube. It is too small if two
	// containers peak together.
	LargestHeadroom Pooling = iota
	// RootSumSquares is the square root of the sum of the squared headrooms, for independent peaks.
	// It is between the maximum and the sum.
	RootSumSquares
)

// Rule configures sharing on a node.
type Rule struct {
	Pooling Pooling
	// EvictAbove is the CPU utilization of the node, 0 to 1, above which one pod is evicted. Apart
	// from that, pods are evicted only if the bases do not fit. 0 evicts pods as soon as bases and
	// headroom do not fit.
	EvictAbove float64
	// NeverEvict disables evictions.
	NeverEvict bool
}

// Amounts are fractional millicores and bytes, neither negative nor infinite.
type Amounts [resources.Kinds]float64

// Container is a container that shares.
type Container struct {
	Name       string
	Base, Peak Amounts // a peak below the base counts as the base
}

func (c *Container) headroom(k resources.Kind) float64 { return max(c.Peak[k]-c.Base[k], 0) }

// Pod is a pod with sharing containers.
type Pod struct {
	Name       string // with namespace
	Rank       Rank
	Daemon     bool    // belongs to the node and is never evicted
	Init       Amounts // maximum request of an init container, a lower bound for the pod
	Containers []Container
}

func (p *Pod) neverEvicted() bool { return p.Daemon || p.Rank == Never }

func (p *Pod) total(k resources.Kind) float64 {
	sum := 0.0
	for i := range p.Containers {
		sum += p.Containers[i].Base[k]
	}
	return max(sum, p.Init[k])
}

func (p *Pod) maxHeadroom(k resources.Kind) float64 {
	most := 0.0
	for i := range p.Containers {
		most = max(most, p.Containers[i].headroom(k))
	}
	return most
}

// CappedTo caps bases and peaks at limit, because a pod cannot use more than its node has.
func (p *Pod) CappedTo(limit Amounts) Pod {
	cut, copied := *p, false
	for i := range p.Containers {
		for k := range limit {
			if p.Containers[i].Base[k] <= limit[k] && p.Containers[i].Peak[k] <= limit[k] {
				continue
			}
			if !copied {
				cut.Containers, copied = slices.Clone(p.Containers), true
			}
			c := &cut.Containers[i]
			c.Base[k], c.Peak[k] = min(c.Base[k], limit[k]), min(c.Peak[k], limit[k])
		}
	}
	return cut
}

// Node is a node with its sharing pods.
type Node struct {
	Kinds     [resources.Kinds]bool // shared kinds
	Available Amounts               // allocatable minus the requests of pods that do not share
	Used      float64               // recent CPU utilization of the node, 0 to 1, for Rule.EvictAbove
	Pods      []Pod
}

// Result contains the shares of a node. A kind that is not shared has no share.
type Result struct {
	Shares    [][]Amounts // by pod and container, nil for evicted pods
	Evictions []int       // pods to evict, in order
	Headroom  Amounts     // total above the bases
	// Overcommitted kinds have bases above Available: shares equal the bases, and no pod may grow.
	Overcommitted [resources.Kinds]bool
}

// sumTolerance absorbs the floating-point error of sums, so that exact fits are accepted.
const sumTolerance = 1 + 1e-9

// Shares returns the share of each container: its base, plus the node's headroom in proportion to
// its own headroom. Base ≤ share ≤ peak holds, and all shares together are at most the bases
// plus the headroom. Memory is decided first, then CPU for the remaining pods. The result does not
// depend on the order of the pods, but their names must be unique. Applying the shares to the node
// and calling Shares again returns the same result.
func Shares(n *Node, r Rule) Result {
	remaining := make([]int, len(n.Pods))
	for i := range remaining {
		remaining[i] = i
	}
	slices.SortFunc(remaining, func(a, b int) int { return cmp.Compare(n.Pods[a].Name, n.Pods[b].Name) })
	var result Result
	for _, k := range [...]resources.Kind{resources.Memory, resources.CPU} {
		if n.Kinds[k] {
			remaining = n.evictUntilFits(k, r, remaining, &result)
		}
	}
	result.Shares = n.newShares(remaining)
	for k := range resources.Kind(resources.Kinds) {
		if n.Kinds[k] {
			n.distribute(k, r, remaining, &result)
		}
	}
	return result
}

func (n *Node) newShares(remaining []int) [][]Amounts {
	containers := 0
	for _, i := range remaining {
		containers += len(n.Pods[i].Containers)
	}
	shares, all := make([][]Amounts, len(n.Pods)), make([]Amounts, containers)
	for _, i := range remaining {
		own := len(n.Pods[i].Containers)
		shares[i], all = all[:own:own], all[own:]
	}
	return shares
}

// evictUntilFits removes pods until the others fit or may not be evicted. It reuses remaining.
func (n *Node) evictUntilFits(k resources.Kind, r Rule, remaining []int, result *Result) []int {
	if r.NeverEvict || n.fits(k, r, remaining) {
		return remaining
	}
	candidates := slices.Clone(remaining)
	slices.SortStableFunc(candidates, func(a, b int) int { // remaining is sorted by name
		x, y := &n.Pods[a], &n.Pods[b]
		return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(y.maxHeadroom(k), x.maxHeadroom(k)))
	})
	saturated := n.isSaturated(k, r)
	for _, i := range candidates {
		if n.Pods[i].neverEvicted() {
			continue
		}
		at := slices.Index(remaining, i)
		remaining = slices.Delete(remaining, at, at+1)
		result.Evictions = append(result.Evictions, i)
		if saturated { // one at a time: the usage without this pod is not yet measured
			r.EvictAbove, saturated = math.Inf(1), false
		}
		if n.fits(k, r, remaining) {
			break
		}
	}
	return remaining
}

func (n *Node) isSaturated(k resources.Kind, r Rule) bool {
	return k == resources.CPU && r.EvictAbove > 0 && n.Used > r.EvictAbove
}

func (n *Node) fits(k resources.Kind, r Rule, remaining []int) bool {
	pooled := 0.0
	if r.EvictAbove == 0 {
		pooled = n.pooled(k, r, remaining)
	}
	return !n.isSaturated(k, r) && n.canProvide(k, n.sum(k, remaining)+pooled)
}

func (n *Node) canProvide(k resources.Kind, amount float64) bool {
	return amount <= n.Available[k]*sumTolerance
}

// FitsBases reports whether the bases fit alone. Otherwise the pod would take all from the others.
func (n *Node) FitsBases(p *Pod) bool {
	for k, shared := range n.Kinds {
		if shared && !n.canProvide(resources.Kind(k), p.total(resources.Kind(k))) {
			return false
		}
	}
	return true
}

// Spare returns the available amounts minus all bases, negative if the bases exceed them.
func (n *Node) Spare() (left Amounts) {
	for k := range left {
		left[k] = n.Available[k]
		for i := range n.Pods {
			left[k] -= n.Pods[i].total(resources.Kind(k))
		}
	}
	return left
}

func (n *Node) sum(k resources.Kind, pods []int) float64 {
	sum := 0.0
	for _, i := range pods {
		sum += n.Pods[i].total(k)
	}
	return sum
}

func (n *Node) pooled(k resources.Kind, r Rule, pods []int) float64 {
	largest, squares := 0.0, 0.0
	for _, i := range pods {
		for c := range n.Pods[i].Containers {
			h := n.Pods[i].Containers[c].headroom(k)
			largest, squares = max(largest, h), squares+h*h
		}
	}
	if r.Pooling == RootSumSquares {
		return max(math.Sqrt(squares), largest)
	}
	return largest
}

func (n *Node) distribute(k resources.Kind, r Rule, remaining []int, result *Result) {
	sum, total := n.sum(k, remaining), 0.0
	for _, i := range remaining {
		for c := range n.Pods[i].Containers {
			total += n.Pods[i].Containers[c].headroom(k)
		}
	}
	pooled := n.pooled(k, r, remaining)
	if !n.canProvide(k, sum+pooled) {
		pooled = max(n.Available[k]-sum, 0)
	}
	result.Overcommitted[k] = len(remaining) > 0 && !n.canProvide(k, sum)
	result.Headroom[k] = pooled
	for _, i := range remaining {
		for c := range n.Pods[i].Containers {
			own := &n.Pods[i].Containers[c]
			share := own.Base[k]
			if total > 0 {
				share += pooled * own.headroom(k) / total
			}
			result.Shares[i][c][k] = min(share, max(own.Base[k], own.Peak[k])) // rounding may exceed the peak
		}
	}
}
