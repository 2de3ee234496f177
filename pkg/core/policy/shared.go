package policy

import (
	"math"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Pods that share the headroom of their node (package sharing) request amounts that depend on their
// neighbours, so limits in proportion to requests would be meaningless. For each shared kind, of a
// container with a request:
//
//	             running pod                             new pod
//	CPU          the share, 1 millicore to 10 cores      the target, at least 1 millicore
//	  limit      stays and caps the request, or          stays and caps the request, or
//	             is the CPU of the node                  is removed
//	memory       the share, at least 16 MB               the target, at least 16 MB, if it differs by
//	                                                     more than 16 MB
//	  limit      2 x upper bound, never lowered, and     2 x upper bound, at least 2 x target and 512 MB, also
//	             only if there is one                    if there is none
//	  = request  both 2 x upper bound, or unchanged      as any other
//	             if that lowers them
//	daemon pod   as any other                            requests stay, and the memory limit is only raised
//
// A base above 10 cores is not cut. A container without a request stays unchanged. RequestsOnly
// keeps limits, with the Note LimitStays. If a LimitRange would reject the limits, they follow the
// requests as in any other pod.

// Sharing configures how a pod shares its node.
type Sharing struct {
	Kinds    [resources.Kinds]bool // shared kinds, others are sized as in any other pod
	CPULimit sharing.CPULimit
	NodeCPU  resources.Amount // allocatable millicores of a running pod's node, 0 is unknown
	New      bool             // the pod is being created
	Daemon   bool             // the pod belongs to a DaemonSet
}

// Bounds and tolerance of shared requests, in millicores and bytes. A larger base is not cut.
var (
	minShared       = [resources.Kinds]resources.Amount{resources.CPU: 1, resources.Memory: megabytes(16)}
	maxShared       = [resources.Kinds]resources.Amount{resources.CPU: 10_000, resources.Memory: math.MaxInt64}
	sharedTolerance = [resources.Kinds]resources.Amount{resources.CPU: 1, resources.Memory: megabytes(16)}
)

// minNewLimit is the minimum memory limit of a new pod, in bytes.
var minNewLimit = megabytes(512)

func megabytes(n resources.Amount) resources.Amount { return n * 1e6 }

// doubled is the memory limit that protects an amount.
func doubled(a resources.Amount) resources.Amount { return a.Add(a) }

func (r Rule) shares(k resources.Kind) bool { return !r.Off && r.Sharing != nil && r.Sharing.Kinds[k] }

func (r Rule) keepsLimit(k resources.Kind) bool { return r.RequestsOnly || r.shares(k) }

// fitShared is Fit for sharing pods. Kinds whose limits a LimitRange rejects are fitted as usual.
func fitShared(pod Pod, recommendation map[string]resources.Bounds, rules Rules, ranges Ranges) Result {
	result := fitUnshared(pod, recommendation, rules, ranges)
	for k := range resources.Kind(resources.Kinds) {
		if !rules.Sharing.Kinds[k] || !result.refused(k) {
			continue
		}
		other, rest := rules, *rules.Sharing
		rest.Kinds[k] = false
		other.Sharing = &rest
		given := make(map[string]resources.Bounds, len(recommendation))
		for name, b := range recommendation {
			switch {
			case rest.New && rest.Daemon:
				b = withoutKind(b, k)
			case !rest.New && (k != resources.Memory || !rules.SeparateMemoryLimit):
				b = tightBounds(b, k)
			}
			given[name] = b
		}
		if usual := fitUnshared(pod, given, other, ranges); !usual.refused(k) {
			result, rules, recommendation = usual, other, given
		}
	}
	return result
}

func (r Result) refused(k resources.Kind) bool {
	return r.has(Note{k, OutsideRange}) || r.has(Note{k, OutsidePodRange})
}

func (p *part) applySharing(ranges Ranges) {
	for k := range resources.Kind(resources.Kinds) {
		if !p.rule.shares(k) || !p.recommendation.Target.Has(k) {
			continue
		}
		if p.container.Requests.Value(k) <= 0 {
			p.dropRecommendation(k)
			continue
		}
		p.fixedLimits[k] = true
		p.recommendation.Target = p.recommendation.Target.With(k, p.sharedRequest(k))
		switch {
		case k == resources.CPU:
			p.shareCPU(ranges)
		case p.rule.Sharing.New:
			p.shareNewMemory(ranges)
		default:
			p.shareMemory(ranges)
		}
		if !p.rule.Sharing.New {
			p.recommendation = tightBounds(p.recommendation, k)
		}
	}
}

// sharedRequest never cuts a running container below its base, which is the lower bound.
func (p *part) sharedRequest(k resources.Kind) resources.Amount {
	most := max(maxShared[k], p.recommendation.Lower.Value(k))
	if p.rule.Sharing.New {
		most = 0
	}
	a, _ := clamp(p.recommendation.Target.Value(k), minShared[k], most)
	a, _ = clamp(a, p.rule.Min.Value(k), p.rule.Max.Value(k))
	return a
}

func (p *part) dropRecommendation(k resources.Kind) {
	p.recommendation = withoutKind(p.recommendation, k)
}

func withoutKind(b resources.Bounds, k resources.Kind) resources.Bounds {
	return resources.Bounds{Lower: b.Lower.Without(k), Target: b.Target.Without(k), Upper: b.Upper.Without(k)}
}

// tightBounds sets bounds close to the target, so that a pod changes only when its share does.
func tightBounds(b resources.Bounds, k resources.Kind) resources.Bounds {
	target, ok := b.Target.Get(k)
	if !ok {
		return b
	}
	b.Lower, b.Upper = b.Lower.With(k, max(target-sharedTolerance[k], 0)), b.Upper.With(k, target.Add(sharedTolerance[k]))
	return b
}

func (p *part) setLimit(k resources.Kind, limit resources.Amount, ranges Ranges) {
	if most := ranges.Container.Max.Value(k); most > 0 {
		limit = min(limit, most)
	}
	if p.rule.RequestsOnly {
		if limit != p.container.Limits.Value(k) {
			p.notes = append(p.notes, Note{k, LimitStays})
		}
		return
	}
	p.container.Limits, p.writtenLimits = p.container.Limits.With(k, limit), p.writtenLimits.With(k, limit)
}

func (p *part) shareCPU(ranges Ranges) {
	const k = resources.CPU
	s, limit := p.rule.Sharing, p.container.Limits.Value(k)
	switch {
	case limit <= 0:
	case s.New && s.CPULimit == sharing.RemoveLimit && (p.rule.RequestsOnly || ranges.requireLimit(k)):
		p.notes = append(p.notes, Note{k, LimitStays})
	case s.New && s.CPULimit == sharing.RemoveLimit:
		p.container.Limits, p.removedLimits[k] = p.container.Limits.Without(k), true
	case !s.New && s.CPULimit != sharing.KeepLimit && s.NodeCPU > 0:
		p.setLimit(k, s.NodeCPU, ranges)
	}
	if s.New && s.Daemon {
		p.dropRecommendation(k)
	}
}

func (r Ranges) requireLimit(k resources.Kind) bool {
	for _, one := range [...]Range{r.Container, r.Pod} {
		if one.Max.Value(k) > 0 || one.MaxRatio.Value(k) > 0 || one.Default.Value(k) > 0 {
			return true
		}
	}
	return false
}

func (p *part) shareMemory(ranges Ranges) {
	const k = resources.Memory
	request, limit := p.container.Requests.Value(k), p.container.Limits.Value(k)
	target := p.recommendation.Target.Value(k)
	protected := max(doubled(p.recommendation.Upper.Value(k)), minShared[k])
	switch {
	case limit <= 0:
	case limit == request && !p.rule.RequestsOnly: // both stay equal, as in any other pod
		p.fixedLimits[k] = false
		p.recommendation.Target = p.recommendation.Target.With(k, protected)
		if protected < limit {
			p.dropRecommendation(k)
		}
	default:
		wanted := max(protected, limit)
		if wanted <= target { // the upper bound is too low; equal amounts would stay equal
			wanted = doubled(target)
		}
		p.setLimit(k, wanted, ranges)
		if limit, written := p.writtenLimits.Get(k); written {
			p.memoryLimit = LimitSpan{limit.Scale(minLimitRatio), math.MaxInt64}
		}
	}
}

func (p *part) shareNewMemory(ranges Ranges) {
	const k = resources.Memory
	request, limit := p.container.Requests.Value(k), p.container.Limits.Value(k)
	target := p.recommendation.Target.Value(k)
	wanted := max(doubled(p.recommendation.Upper.Value(k)), doubled(target), minNewLimit)
	switch {
	case p.rule.Sharing.Daemon:
		p.dropRecommendation(k)
		if limit > 0 {
			p.setLimit(k, max(wanted, limit), ranges)
		}
	case max(target-request, request-target) > sharedTolerance[k]:
		p.setLimit(k, wanted, ranges)
	default:
		p.dropRecommendation(k)
		if limit > 0 && wanted-limit > sharedTolerance[k] {
			p.setLimit(k, wanted, ranges)
		}
	}
}
