package shares

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/explanation"
)

// Explain explains the share of a pod in the last round. It returns nil if the pod's policy does
// not enable sharing or the round has no such pod. It may run concurrently with the other methods.
func (s *Sharing) Explain(uid types.UID) *explanation.Share {
	r := s.last.Load()
	if r == nil {
		return nil
	}
	p := r.pods[uid]
	if p == nil || p.VPA == nil {
		return nil
	}
	result := &p.node.results[1]
	if p.node.sharesInEffect(p) {
		result = &p.node.results[0]
	}
	e := &explanation.Share{
		Policy: p.VPA.Decision.Policy.Name, Active: result.Active, Node: result.Name, Problem: p.node.Problem, Cordoned: p.node.Cordoned,
		Pods: result.Pods, Leaves: slices.ContainsFunc(result.Leaves, func(l PodName) bool { return l.UID == uid }),
	}
	switch why := p.ExclusionReason(); {
	case result.Name == "": // the shares could not be computed
		e.Excluded = explanation.NewSkip(reason.InternalError)
	case why != "" && p.VPA.Mode == fleet.SharingOff: // the reason of the workload is more specific
		e.Excluded = explanation.NewSkip(cmp.Or(p.VPA.ModeReason, why))
	default:
		e.Excluded = explanation.NewSkip(why)
	}
	e.DryRun = explanation.NewSkip(p.VPA.ModeReason)
	if e.Excluded != nil || p.shares == nil && !e.Leaves {
		return e
	}
	e.CPU, e.Memory = p.amounts(result, resources.CPU), p.amounts(result, resources.Memory)
	return e
}

// amounts returns the amounts of one kind, or nil if the pod does not share it.
func (p *member) amounts(of *NodeResult, k resources.Kind) *explanation.ShareAmounts {
	if !of.Kinds[k] || !p.VPA.Settings.Kinds[k] {
		return nil
	}
	a := &explanation.ShareAmounts{
		Allocatable: float64(p.node.Allocatable.Value(k)),
		Available:   of.Available[k], Bases: of.Bases[k], Headroom: of.Headroom[k], Overcommitted: of.Overcommitted[k],
	}
	for i, c := range p.Sharing.Containers {
		a.Base += c.Base[k]
		a.Peak += max(c.Base[k], c.Peak[k])
		if p.shares != nil {
			a.Share += p.shares[i][k]
		}
	}
	starts := p.Sharing.Init[k]
	a.Base, a.Peak = max(a.Base, starts), max(a.Peak, starts)
	if p.shares != nil {
		a.Share = max(a.Share, starts)
	}
	return a
}
