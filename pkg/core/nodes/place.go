package nodes

import (
	"cmp"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

const nowhere = -1

// slack tolerates rounding errors of sums.
const slack = 1e-9

func (s *simulation) fits(sum, request [resources.Kinds]float64) bool {
	for k, most := range s.options.Allocatable {
		if s.options.Kinds[k] && sum[k]+request[k] > most*(1+slack) {
			return false
		}
	}
	return true
}

func (s *simulation) dominantShare(amounts [resources.Kinds]float64) float64 {
	most := 0.0
	for k := range resources.Kind(resources.Kinds) {
		if s.options.Kinds[k] {
			most = max(most, amounts[k]/s.options.Allocatable[k])
		}
	}
	return most
}

func (s *simulation) startOn(i, n int, request [resources.Kinds]float64) {
	p := &s.pods[i]
	p.node, p.request, p.awaitsShare = n, request, true
	s.nodes[n].pods = append(s.nodes[n].pods, i)
	s.addRequest(n, request, 1)
}

func (s *simulation) remove(i int) {
	p := &s.pods[i]
	n := &s.nodes[p.node]
	at := slices.Index(n.pods, i)
	n.pods = slices.Delete(n.pods, at, at+1)
	s.addRequest(p.node, p.request, -1)
	if len(n.pods) == 0 {
		*n = node{pods: n.pods, lastShrink: -1}
	}
	p.node = nowhere
}

func (s *simulation) addRequest(n int, request [resources.Kinds]float64, sign float64) {
	for k := range request {
		s.nodes[n].sum[k] += sign * request[k]
	}
}

func (s *simulation) setRequest(p *pod, request [resources.Kinds]float64) {
	s.addRequest(p.node, p.request, -1)
	s.addRequest(p.node, request, 1)
	p.request = request
}

// start starts a pod on the first node with room, except the node that it left, else on a new node.
func (s *simulation) start(i, left int) {
	request := s.requested(&s.pods[i])
	empty := nowhere
	for n := range s.nodes {
		switch {
		case len(s.nodes[n].pods) == 0:
			if empty == nowhere {
				empty = n
			}
		case n != left && s.fits(s.nodes[n].sum, request):
			s.startOn(i, n, request)
			return
		}
	}
	if empty == nowhere {
		empty = len(s.nodes)
		s.nodes = append(s.nodes, node{lastShrink: -1})
	}
	s.startOn(i, empty, request)
}

func (s *simulation) move(i, from int) {
	s.start(i, from)
	if s.variant.Rule == nil || !s.options.ShareOnArrival {
		return
	}
	rule := *s.variant.Rule
	rule.NeverEvict = true
	n := s.pods[i].node
	result := s.shares(n, rule)
	s.apply(n, s.nodes[n].pods, &result)
}

// place places all pods from scratch, largest first. With sharing, the whole peak of a pod must fit
// in addition to the shares of the pods already placed.
func (s *simulation) place() {
	order, size := make([]int, len(s.pods)), make([]float64, len(s.pods))
	for i := range s.pods {
		order[i], size[i] = i, s.dominantShare(s.requested(&s.pods[i]))
		s.pods[i].node = nowhere
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size[b], size[a]) })
	s.nodes = s.nodes[:0]
	for _, i := range order {
		s.start(i, nowhere)
		if s.variant.Rule != nil {
			s.applyShares(s.pods[i].node)
		}
	}
}

// resize applies the recommended requests of resources that are not shared. On overcommitted nodes
// the pods that grew most move, or revert to their previous request with NoMoves.
func (s *simulation) resize() {
	s.grownPods = s.grownPods[:0]
	for i := range s.pods {
		p := &s.pods[i]
		want, grows := p.request, false
		for k := range resources.Kind(resources.Kinds) {
			if !s.options.Kinds[k] || s.shared[k] {
				continue
			}
			want[k] = s.scaled(p.trace.Request[k], p.at, k)
			grows = grows || want[k] > p.request[k]
		}
		if want == p.request {
			continue
		}
		s.setRequest(p, want)
		s.score.Resizes++
		if grows {
			s.grownPods = append(s.grownPods, i)
		}
	}
	var none [resources.Kinds]float64
	for n := range s.nodes {
		for len(s.grownPods) > 0 && !s.fits(s.nodes[n].sum, none) && s.resolveOvercommit(n) {
		}
	}
}

// resolveOvercommit moves or restores the pod that grew most, and returns false if none grew.
func (s *simulation) resolveOvercommit(n int) bool {
	most, who := 0.0, nowhere
	for _, i := range s.grownPods {
		if by := s.growth(n, i); by > most {
			most, who = by, i
		}
	}
	if who == nowhere {
		return false
	}
	s.score.Resizes--
	if p := &s.pods[who]; s.options.NoMoves {
		s.setRequest(p, p.previousRequest)
		return true
	}
	s.remove(who)
	s.score.Moves++
	s.move(who, n)
	return true
}

// growth returns the node share by which a pod grew in this step, in overcommitted resources.
func (s *simulation) growth(n, i int) float64 {
	p, by := &s.pods[i], [resources.Kinds]float64{}
	if p.node != n {
		return 0
	}
	for k, most := range s.options.Allocatable {
		if s.nodes[n].sum[k] > most*(1+slack) {
			by[k] = p.request[k] - p.previousRequest[k]
		}
	}
	return s.dominantShare(by)
}

// consolidate empties the least requested node if its pods fit elsewhere with their requests in
// force, as in tools that simulate with these requests. The pods then arrive with their arrival
// requests, which may be higher, so that a new node may be needed.
func (s *simulation) consolidate() {
	if s.options.NoMoves {
		return
	}
	var order []int
	for n := range s.nodes {
		if len(s.nodes[n].pods) > 0 {
			order = append(order, n)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(s.dominantShare(s.nodes[a].sum), s.dominantShare(s.nodes[b].sum))
	})
	for _, n := range order {
		if !s.isRemovable(n) {
			continue
		}
		pods := slices.Clone(s.nodes[n].pods)
		for _, i := range pods {
			s.remove(i)
		}
		for _, i := range pods {
			s.move(i, nowhere)
		}
		s.score.Consolidated += len(pods)
		return
	}
}

func (s *simulation) isRemovable(n int) bool {
	sums := s.scratch.sums[:0]
	for i := range s.nodes {
		sums = append(sums, s.nodes[i].sum)
	}
	s.scratch.sums = sums
	for _, i := range s.nodes[n].pods {
		to, request := 0, s.pods[i].request
		for to < len(sums) && (to == n || len(s.nodes[to].pods) == 0 || !s.fits(sums[to], request)) {
			to++
		}
		if to == len(sums) {
			return false
		}
		for k := range request {
			sums[to][k] += request[k]
		}
	}
	return true
}
