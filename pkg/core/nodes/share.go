package nodes

import (
	"cmp"
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Minimum relative change of a share that changes a request.
const minShareChange = 0.05

type scratch struct {
	sums       [][resources.Kinds]float64
	pods       []sharing.Pod
	containers []sharing.Container
	want       []float64
	weight     []float64
	order      []int
}

func (s *simulation) shares(n int, rule sharing.Rule) sharing.Result {
	at := &s.nodes[n]
	view := sharing.Node{Kinds: s.shared, Used: at.cpuUsed}
	for k := range view.Available {
		view.Available[k] = s.options.Allocatable[k]
	}
	s.scratch.pods, s.scratch.containers = s.scratch.pods[:0], s.scratch.containers[:0]
	for _, i := range at.pods {
		c := sharing.Container{}
		for k := range resources.Kind(resources.Kinds) {
			if s.shared[k] {
				c.Base[k], c.Peak[k] = s.span(&s.pods[i], k)
			}
		}
		s.scratch.containers = append(s.scratch.containers, c)
	}
	for at, i := range at.pods {
		s.scratch.pods = append(s.scratch.pods, sharing.Pod{Name: s.pods[i].name, Containers: s.scratch.containers[at : at+1]})
	}
	view.Pods = s.scratch.pods
	return sharing.Shares(&view, rule)
}

// applyShares sets the shares of the pods on a node. No share exceeds the arrival request of a pod.
func (s *simulation) applyShares(n int) {
	rule := *s.variant.Rule
	rule.NeverEvict = true
	for at, share := range s.shares(n, rule).Shares {
		p := &s.pods[s.nodes[n].pods[at]]
		s.setRequest(p, s.request(p, share[0]))
		p.awaitsShare = false
	}
}

func (s *simulation) request(p *pod, share sharing.Amounts) [resources.Kinds]float64 {
	r := p.request
	for k := range r {
		if s.shared[k] {
			r[k] = share[k]
		}
	}
	return r
}

// share runs one round. On each node it removes the pods that must leave, and applies the shares of
// the others, reductions first. Removed pods start elsewhere with their peak.
func (s *simulation) share() {
	rule := *s.variant.Rule
	rule.NeverEvict = rule.NeverEvict || s.options.NoMoves
	var leave, from []int
	for n := range s.nodes {
		pods := s.nodes[n].pods
		if len(pods) == 0 {
			continue
		}
		result := s.shares(n, rule)
		if len(result.Evictions) > 0 {
			pods = slices.Clone(pods)
		}
		for _, at := range result.Evictions {
			leave, from = append(leave, pods[at]), append(from, n)
			s.remove(pods[at])
		}
		s.apply(n, pods, &result)
	}
	s.score.Leaves += len(leave)
	for at, i := range leave {
		s.move(i, from[at])
	}
}

// apply sets shares that changed by more than minShareChange for the pods of a result. Growth must
// fit after all reductions, otherwise it waits for the next round.
func (s *simulation) apply(n int, pods []int, result *sharing.Result) {
	at := &s.nodes[n]
	rest := s.shrinkPaused(n, pods, result)
	for _, grows := range []bool{false, true} {
		for i, share := range result.Shares {
			if share == nil || !grows && rest {
				continue
			}
			p := &s.pods[pods[i]]
			to := p.request
			for k := range to {
				if change := share[0][k] - p.request[k]; s.shared[k] && change > 0 == grows && math.Abs(change) > minShareChange*p.request[k] {
					to[k] = share[0][k]
				}
			}
			if to == p.request || grows && !s.canGrow(n, p, to, result) {
				continue
			}
			s.setRequest(p, to)
			s.score.Resizes++
			if !grows {
				at.lastShrink, p.awaitsShare = s.now, false
			}
		}
	}
}

// shrinkPaused reports whether reductions on a node must wait, because the last one was recent and
// no new pod has to release part of its peak. With consolidation, new pods make no difference.
func (s *simulation) shrinkPaused(n int, pods []int, result *sharing.Result) bool {
	at := &s.nodes[n]
	if at.lastShrink < 0 || time.Duration(s.now-at.lastShrink)*s.length >= cmp.Or(s.options.ConsolidationInterval, shrinkInterval) {
		return false
	}
	if s.options.ConsolidationInterval > 0 {
		return true
	}
	for i, share := range result.Shares {
		p := &s.pods[pods[i]]
		for k, shared := range s.shared {
			if shared && p.awaitsShare && share != nil && share[0][k] < p.request[k]*(1-minShareChange) {
				return false
			}
		}
	}
	return true
}

// canGrow reports whether a pod may grow in place. If the bases exceed the node, no pod grows.
func (s *simulation) canGrow(n int, p *pod, to [resources.Kinds]float64, result *sharing.Result) bool {
	var by [resources.Kinds]float64
	for k := range by {
		by[k] = to[k] - p.request[k]
		if by[k] > 0 && result.Overcommitted[k] {
			return false
		}
	}
	return s.fits(s.nodes[n].sum, by)
}
