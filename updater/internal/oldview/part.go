package oldview

import (
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
	nodeshare "loadline.dev/loadline/updater/internal/oldnodeshare"
)

// sharePart is what a pod would get of what it shares.
type sharePart struct {
	of             *sharing.Amounts // the share it was made of
	fitted         []policy.ContainerTarget
	shrinks, grows [resources.Kinds]bool
}

// moves reports whether that is something else than the pod has.
func (p *sharePart) moves() bool {
	return p.shrinks != [resources.Kinds]bool{} || p.grows != [resources.Kinds]bool{}
}

// reaches reports whether one of some kinds grows.
func (p *sharePart) reaches(kinds [resources.Kinds]bool) bool {
	for k, grows := range p.grows {
		if grows && kinds[k] {
			return true
		}
	}
	return false
}

// only returns the part without all other kinds.
func (p *sharePart) only(kinds [resources.Kinds]bool) *sharePart {
	some := &sharePart{fitted: slices.Clone(p.fitted), shrinks: p.shrinks, grows: p.grows}
	for k := range resources.Kind(resources.Kinds) {
		if kinds[k] {
			continue
		}
		some.shrinks[k], some.grows[k] = false, false
		for i := range some.fitted {
			some.fitted[i] = without(some.fitted[i], k)
		}
	}
	return some
}

// growth returns the part without what gives less to a container than it has.
func (p *sharePart) growth(whole []disruption.Container) *sharePart {
	some := &sharePart{fitted: slices.Clone(p.fitted), grows: p.grows}
	for i := range some.fitted {
		for k := range resources.Kind(resources.Kinds) {
			if wanted, found := some.fitted[i].Requests.Get(k); found && wanted < whole[i].Asked.Requests.Value(k) {
				some.fitted[i] = without(some.fitted[i], k)
			}
		}
	}
	return some
}

// others returns all of some kinds but those.
func others(kinds, but [resources.Kinds]bool) [resources.Kinds]bool {
	for k := range kinds {
		kinds[k] = kinds[k] && !but[k]
	}
	return kinds
}

// part returns what a pod would get of what it shares. As long as neither the pod nor its share
// changes, that is made once.
func (d *division) part(a *aim, whole []disruption.Container, known *knownPod) *sharePart {
	var share *sharing.Amounts
	if a.standing == Acts && a.peak == [resources.Kinds]bool{} && len(a.shared.shares) > 0 {
		share = &a.shared.shares[0]
		if known.extra.part != nil && known.extra.part.of == share {
			return known.extra.part
		}
	}
	part := &sharePart{of: share, fitted: a.fit(whole)}
	for i := range part.fitted {
		f, asked := &part.fitted[i], &whole[i].Asked
		for k := range resources.Kind(resources.Kinds) {
			if !a.kinds[k] {
				*f = without(*f, k)
				continue
			}
			if a.peak[k] {
				f.Requests, f.Limits = noLess(k, f.Requests, asked.Requests), noLess(k, f.Limits, asked.Limits)
			}
			if a.keeps(k, f, asked) {
				*f = without(*f, k)
			}
		}
		if !whole[i].Observed {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if wanted, some := f.Requests.Get(k); some {
				has := float64(asked.Requests.Value(k))
				less, more := worthMoving(int(k), has, float64(wanted))
				more = more || a.peak[k] && float64(wanted) > has*(1+nodeshare.LeastMove) || // however little that is
					a.peak[k] && !a.ends[k] && f.Limits.Value(k) > asked.Limits.Value(k) // the old limit may be what did harm
				part.shrinks[k], part.grows[k] = part.shrinks[k] || less, part.grows[k] || more
			}
		}
		part.grows[resources.Memory] = part.grows[resources.Memory] || f.MemoryLimit != (policy.LimitSpan{}) && asked.Limits.Value(resources.Memory) < f.MemoryLimit.Least
	}
	if share != nil {
		known.extra.part = part
	}
	return part
}

// keeps reports whether a container keeps what it has of a kind: it has its peak, or nobody on its
// node is to be given more.
func (a *aim) keeps(k resources.Kind, f *policy.ContainerTarget, asked *policy.Container) bool {
	wanted, some := f.Requests.Get(k)
	if !some {
		return false
	}
	has := asked.Requests.Value(k)
	if a.peak[k] {
		limit, limited := f.Limits.Get(k)
		return wanted <= has && (!limited || limit <= asked.Limits.Value(k))
	}
	return a.standing == Acts && wanted > has && a.shared.node.results[0].Overcommitted[k]
}

// noLess returns amounts of which that of a kind, if there is one, is no less than what a container has.
func noLess(k resources.Kind, of, has resources.List) resources.List {
	if a, some := of.Get(k); some {
		return of.With(k, max(a, has.Value(k)))
	}
	return of
}

// fit returns what the containers would get if their shares, or their peaks, were recommended.
func (a *aim) fit(whole []disruption.Container) []policy.ContainerTarget {
	pod := policy.Pod{Containers: make([]policy.Container, len(whole))}
	given := make(map[string]resources.Bounds, len(whole))
	for i := range whole {
		pod.Containers[i] = whole[i].Current
		b, recommended := a.vpa.reading.Recommendation[whole[i].Current.Name]
		if !recommended {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			switch {
			case !a.kinds[k]:
				b = resources.Bounds{Lower: b.Lower.Without(k), Target: b.Target.Without(k), Upper: b.Upper.Without(k)}
			case b.Target.Has(k) && !a.peak[k] && a.standing == Acts && i < len(a.shared.shares):
				b.Target = b.Target.With(k, amountOf(a.shared.shares[i][k]))
			}
		}
		given[whole[i].Current.Name] = b
	}
	rules := a.vpa.reading.Rules
	rules.Sharing = &policy.Sharing{Kinds: a.kinds}
	if a.standing == Acts {
		if !a.shared.by.KeepsCPULimit {
			rules.Sharing.CPULimit = a.shared.by.Settings.CPULimit
		}
		rules.Sharing.NodeCPU = a.shared.node.Allocatable.Value(resources.CPU)
		rules.Sharing.Daemon = a.shared.Sharing.Daemon
	}
	return policy.Fit(pod, given, rules, a.vpa.reading.Ranges.Ranges).Containers
}

// amountOf returns a share in whole millicores or bytes, so that all together are no more than
// there is; what is missing for the error of sums alone is not cut.
func amountOf(share float64) resources.Amount { return resources.Amount(math.Floor(share + 1e-6)) }

// without returns what a container gets without a kind.
func without(f policy.ContainerTarget, k resources.Kind) policy.ContainerTarget {
	f.Requests, f.Limits = f.Requests.Without(k), f.Limits.Without(k)
	f.Bounds = resources.Bounds{Lower: f.Bounds.Lower.Without(k), Target: f.Bounds.Target.Without(k), Upper: f.Bounds.Upper.Without(k)}
	f.WithoutLimit[k] = false
	f.Notes = slices.DeleteFunc(slices.Clone(f.Notes), func(n policy.Note) bool { return n.Kind == k })
	if k == resources.Memory {
		f.MemoryLimit, f.Declared = policy.LimitSpan{}, policy.Proportion{}
	}
	return f
}
