package nodes

import (
	"cmp"
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// grid is the least relative change of a share for which a request moves.
const grid = 0.05

// scratch is memory that is used again in each step.
type scratch struct {
	sums       [][resources.Kinds]float64
	pods       []sharing.Pod
	containers []sharing.Container
	want       []float64
	weight     []float64
	order      []int
}

// shares computes the shares on a node under a rule, from what its pods are recommended now.
func (s *simulation) shares(n int, rule sharing.Rule) sharing.Result {
	at := &s.nodes[n]
	view := sharing.Node{Kinds: s.shared, Used: at.busy}
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

// settle gives the pods of a node their shares, none of which is more than the pod came with.
func (s *simulation) settle(n int) {
	rule := *s.variant.Rule
	rule.Stay = true
	for at, share := range s.shares(n, rule).Shares {
		p := &s.pods[s.nodes[n].pods[at]]
		s.set(p, s.request(p, share[0]))
		p.came = false
	}
}

// request returns the request of a pod with a share.
func (s *simulation) request(p *pod, share sharing.Amounts) [resources.Kinds]float64 {
	r := p.request
	for k := range r {
		if s.shared[k] {
			r[k] = share[k]
		}
	}
	return r
}

// share is one round: on each node the pods that must leave do, the others get their shares,
// first those that shrink. Pods that left start anew, with their peak.
func (s *simulation) share() {
	rule := *s.variant.Rule
	rule.Stay = rule.Stay || s.options.Stay
	var leave, from []int
	for n := range s.nodes {
		pods := s.nodes[n].pods
		if len(pods) == 0 {
			continue
		}
		result := s.shares(n, rule)
		if len(result.Leaves) > 0 {
			pods = slices.Clone(pods)
		}
		for _, at := range result.Leaves {
			leave, from = append(leave, pods[at]), append(from, n)
			s.take(pods[at])
		}
		s.apply(n, pods, &result)
	}
	s.score.Leaves += len(leave)
	for at, i := range leave {
		s.move(i, from[at])
	}
}

// apply gives the pods that stay on a node their shares, as far as they moved by more than the grid. The pods are those
// that the result is of. What grows must fit, after all that shrinks; otherwise it waits for the next round.
func (s *simulation) apply(n int, pods []int, result *sharing.Result) {
	at := &s.nodes[n]
	rest := s.rests(n, pods, result)
	for _, grows := range []bool{false, true} {
		for i, share := range result.Shares {
			if share == nil || !grows && rest {
				continue
			}
			p := &s.pods[pods[i]]
			to := p.request
			for k := range to {
				if change := share[0][k] - p.request[k]; s.shared[k] && change > 0 == grows && math.Abs(change) > grid*p.request[k] {
					to[k] = share[0][k]
				}
			}
			if to == p.request || grows && !s.roomFor(n, p, to, result) {
				continue
			}
			s.set(p, to)
			s.score.Resizes++
			if !grows {
				at.shrunk, p.came = s.now, false
			}
		}
	}
}

// rests reports whether no pod of a node is made smaller now: pods were a short while ago, and none came
// since that is to give something of its peak. Where nodes are emptied it is the same if one did.
func (s *simulation) rests(n int, pods []int, result *sharing.Result) bool {
	at := &s.nodes[n]
	if at.shrunk < 0 || time.Duration(s.now-at.shrunk)*s.length >= cmp.Or(s.options.Consolidate, shrinkEvery) {
		return false
	}
	if s.options.Consolidate > 0 {
		return true
	}
	for i, share := range result.Shares {
		p := &s.pods[pods[i]]
		for k, shared := range s.shared {
			if shared && p.came && share != nil && share[0][k] < p.request[k]*(1-grid) {
				return false
			}
		}
	}
	return true
}

// roomFor reports whether a pod may grow in place. Where the bases alone are more than a node has, nothing grows.
func (s *simulation) roomFor(n int, p *pod, to [resources.Kinds]float64, result *sharing.Result) bool {
	var by [resources.Kinds]float64
	for k := range by {
		by[k] = to[k] - p.request[k]
		if by[k] > 0 && result.Overcommitted[k] {
			return false
		}
	}
	return s.fits(s.nodes[n].sum, by)
}
