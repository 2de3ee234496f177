package nodes

import (
	"cmp"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// leastWeight is the CPU request, in millicores, below which no cgroup weighs less.
const leastWeight = 2

// sharedMemory is what a method that shares memory gives a container at most: twice the
// highest use of seven days, and at least so many bytes.
const sharedMemory = 512e6

// limit returns what a pod may use of a kind; 0 = as much as there is.
func (s *simulation) limit(p *pod, k resources.Kind) float64 {
	if k == resources.Memory && s.shared[k] && p.course.Peak[k] != nil && p.course.Peak[k][p.at] > 0 {
		return max(2*float64(p.course.Upper[k][p.at])*s.variant.Factor[k], sharedMemory)
	}
	return float64(p.course.Limit[k][p.at]) * s.variant.Factor[k]
}

// serve lets pods have CPU. Where they want more than their node has, each gets it by its
// weight, which is its request, and what one does not need goes to the others.
func (s *simulation) serve() {
	for n := range s.nodes {
		s.nodes[n].used = [resources.Kinds]float64{}
	}
	for i := range s.pods {
		p := &s.pods[i]
		n := &s.nodes[p.node]
		p.work += p.use[resources.CPU]
		if limit := s.limit(p, resources.CPU); limit > 0 && p.use[resources.CPU] > limit {
			p.lost += p.use[resources.CPU] - limit
			p.use[resources.CPU] = limit
		}
		n.used[resources.CPU] += p.use[resources.CPU]
		n.used[resources.Memory] += p.use[resources.Memory]
	}
	most := s.options.Allocatable[resources.CPU]
	for i := range s.nodes {
		n := &s.nodes[i]
		n.busy = min(n.used[resources.CPU]/most, 1)
		if n.used[resources.CPU] > most*(1+slack) {
			s.saturate(n, most)
		}
	}
}

// saturate divides the CPU of a node whose pods want more than it has.
func (s *simulation) saturate(n *node, most float64) {
	b := &s.scratch
	b.want, b.weight = b.want[:0], b.weight[:0]
	for _, i := range n.pods {
		p := &s.pods[i]
		b.want, b.weight = append(b.want, p.use[resources.CPU]), append(b.weight, max(p.request[resources.CPU], leastWeight))
	}
	b.order = divide(most, b.want, b.weight, b.order)
	for at, i := range n.pods {
		s.pods[i].lost += s.pods[i].use[resources.CPU] - b.want[at]
	}
}

// divide replaces what some want of an amount by what they get, by their weights: nobody gets more than it wants, and
// what it does not need goes to the others. The order is memory to use again.
func divide(amount float64, want, weight []float64, order []int) []int {
	order, total := order[:0], 0.0
	for i := range want {
		order = append(order, i)
		total += weight[i]
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(want[a]*weight[b], want[b]*weight[a]), a-b)
	})
	for _, i := range order { // those that want least for their weight first
		got := min(want[i], max(amount, 0)*weight[i]/total)
		amount, total = amount-got, total-weight[i]
		want[i] = got
	}
	return order
}

// kills reports whether the memory of a pod rises above its limit in this step. What stays
// above it kills once: a limit that is hit is raised.
func (s *simulation) kills(p *pod) bool {
	limit, before := s.limit(p, resources.Memory), p.above
	p.above = limit > 0 && float64(p.course.Use[resources.Memory][p.at]) > limit
	return p.above && !before
}

// relieve counts OOM kills at limits, and evicts what a kubelet would where a node runs out
// of memory: the pod that is furthest above its request, until the others have enough.
func (s *simulation) relieve() {
	const k = resources.Memory
	if !s.options.Kinds[k] {
		return
	}
	for i := range s.pods {
		if s.kills(&s.pods[i]) {
			s.score.Kills++
		}
	}
	for n := range s.nodes { // pods that start on a node in this step use it from the next one on
		for s.nodes[n].used[k] > s.options.Allocatable[k]*(1+slack) && len(s.nodes[n].pods) > 0 {
			who := slices.MaxFunc(s.nodes[n].pods, func(a, b int) int {
				p, q := &s.pods[a], &s.pods[b]
				return cmp.Or(cmp.Compare(p.use[k]-p.request[k], q.use[k]-q.request[k]), b-a)
			})
			s.nodes[n].used[k] -= s.pods[who].use[k]
			s.pods[who].use[k] = 0
			s.take(who)
			s.score.Pressure++
			s.move(who, n)
		}
	}
}
