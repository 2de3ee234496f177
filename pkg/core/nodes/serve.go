package nodes

import (
	"cmp"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Minimum cgroup weight as a CPU request in millicores.
const minWeight = 2

// Minimum memory limit in bytes with sharing, normally twice the highest usage of seven days.
const minSharedMemory = 512e6

// limit returns the limit of a pod for a resource, 0 = none.
func (s *simulation) limit(p *pod, k resources.Kind) float64 {
	if k == resources.Memory && s.shared[k] && p.trace.Peak[k] != nil && p.trace.Peak[k][p.at] > 0 {
		return max(2*float64(p.trace.Upper[k][p.at])*s.variant.Factor[k], minSharedMemory)
	}
	return float64(p.trace.Limit[k][p.at]) * s.variant.Factor[k]
}

// serve distributes CPU. On a node with too little CPU each pod gets a share by its weight, which
// is its request. Unused parts go to the other pods.
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
		n.cpuUsed = min(n.used[resources.CPU]/most, 1)
		if n.used[resources.CPU] > most*(1+slack) {
			s.divideCPU(n, most)
		}
	}
}

func (s *simulation) divideCPU(n *node, most float64) {
	b := &s.scratch
	b.want, b.weight = b.want[:0], b.weight[:0]
	for _, i := range n.pods {
		p := &s.pods[i]
		b.want, b.weight = append(b.want, p.use[resources.CPU]), append(b.weight, max(p.request[resources.CPU], minWeight))
	}
	b.order = divide(most, b.want, b.weight, b.order)
	for at, i := range n.pods {
		s.pods[i].lost += s.pods[i].use[resources.CPU] - b.want[at]
	}
}

// divide replaces each demand by its share of an amount, by weight. No share exceeds the demand,
// and unused parts go to the others. order is a reusable buffer.
func divide(amount float64, want, weight []float64, order []int) []int {
	order, total := order[:0], 0.0
	for i := range want {
		order = append(order, i)
		total += weight[i]
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(want[a]*weight[b], want[b]*weight[a]), a-b)
	})
	for _, i := range order { // lowest demand per weight first
		got := min(want[i], max(amount, 0)*weight[i]/total)
		amount, total = amount-got, total-weight[i]
		want[i] = got
	}
	return order
}

// exceedsLimit reports whether the memory usage of a pod rises above its limit in this step. Usage
// that remains above it kills only once, because a limit that was hit is raised.
func (s *simulation) exceedsLimit(p *pod) bool {
	limit, before := s.limit(p, resources.Memory), p.aboveLimit
	p.aboveLimit = limit > 0 && float64(p.trace.Use[resources.Memory][p.at]) > limit
	return p.aboveLimit && !before
}

// evictForMemory counts OOM kills at limits. If a node runs out of memory, it evicts like the
// kubelet the pod furthest above its request, until the other pods have enough.
func (s *simulation) evictForMemory() {
	const k = resources.Memory
	if !s.options.Kinds[k] {
		return
	}
	for i := range s.pods {
		if s.exceedsLimit(&s.pods[i]) {
			s.score.Kills++
		}
	}
	for n := range s.nodes { // pods that start on a node in this step use memory from the next step on
		for s.nodes[n].used[k] > s.options.Allocatable[k]*(1+slack) && len(s.nodes[n].pods) > 0 {
			who := slices.MaxFunc(s.nodes[n].pods, func(a, b int) int {
				p, q := &s.pods[a], &s.pods[b]
				return cmp.Or(cmp.Compare(p.use[k]-p.request[k], q.use[k]-q.request[k]), b-a)
			})
			s.nodes[n].used[k] -= s.pods[who].use[k]
			s.pods[who].use[k] = 0
			s.remove(who)
			s.score.Pressure++
			s.move(who, n)
		}
	}
}
