package shares

import (
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/updater/nodeshare"
)

// sharePart is the target of the shared kinds of a pod.
type sharePart struct {
	fitted         []policy.ContainerTarget
	shrinks, grows [resources.Kinds]bool
}

// moves reports whether the target differs from the requests of the pod.
func (p *sharePart) moves() bool {
	return p.shrinks != [resources.Kinds]bool{} || p.grows != [resources.Kinds]bool{}
}

// growsAny reports whether any of the kinds grows.
func (p *sharePart) growsAny(kinds [resources.Kinds]bool) bool {
	for k, grows := range p.grows {
		if grows && kinds[k] {
			return true
		}
	}
	return false
}

// only returns the part for some kinds.
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

// growth returns the part without targets below the requests of a container.
func (p *sharePart) growth(whole []disruption.Container) *sharePart {
	some := &sharePart{fitted: slices.Clone(p.fitted), grows: p.grows}
	for i := range some.fitted {
		for k := range resources.Kind(resources.Kinds) {
			if wanted, found := some.fitted[i].Requests.Get(k); found && wanted < whole[i].Spec.Requests.Value(k) {
				some.fitted[i] = without(some.fitted[i], k)
			}
		}
	}
	return some
}

// others returns kinds except some.
func others(kinds, but [resources.Kinds]bool) [resources.Kinds]bool {
	for k := range kinds {
		kinds[k] = kinds[k] && !but[k]
	}
	return kinds
}

// part returns the targets of the kinds that a pod shares.
func (a *aim) part() *sharePart {
	part := &sharePart{fitted: a.fit()}
	for i := range part.fitted {
		f, asked := &part.fitted[i], &a.whole[i].Spec
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
		if !a.whole[i].Observed {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if wanted, some := f.Requests.Get(k); some {
				has := float64(asked.Requests.Value(k))
				less, more := worthMoving(int(k), has, float64(wanted))
				more = more || a.peak[k] && float64(wanted) > has*(1+nodeshare.LeastMove) || // leastMoved does not apply to peaks
					a.peak[k] && !a.ends[k] && f.Limits.Value(k) > asked.Limits.Value(k) // the old limit may have caused the harm
				part.shrinks[k], part.grows[k] = part.shrinks[k] || less, part.grows[k] || more
			}
		}
		part.grows[resources.Memory] = part.grows[resources.Memory] || f.MemoryLimit != (policy.LimitSpan{}) && asked.Limits.Value(resources.Memory) < f.MemoryLimit.Least
	}
	return part
}

// keeps reports whether a container keeps its request of a kind: it has its peak, or its node is overcommitted and the
// request would grow.
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
	return a.standing == Active && wanted > has && a.shared.node.results[0].Overcommitted[k]
}

// noLess raises the amount of a kind, if there is one, to the present amount.
func noLess(k resources.Kind, of, has resources.List) resources.List {
	if a, some := of.Get(k); some {
		return of.With(k, max(a, has.Value(k)))
	}
	return of
}

// fit returns the targets of the containers with their shares, or their peaks, as the recommendation.
func (a *aim) fit() []policy.ContainerTarget {
	whole := a.whole
	pod := policy.Pod{Containers: make([]policy.Container, len(whole))}
	given := make(map[string]resources.Bounds, len(whole))
	for i := range whole {
		pod.Containers[i] = whole[i].Actual
		b, recommended := a.vpa.Recommendation[whole[i].Actual.Name]
		if !recommended {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			switch {
			case !a.kinds[k]:
				b = resources.Bounds{Lower: b.Lower.Without(k), Target: b.Target.Without(k), Upper: b.Upper.Without(k)}
			case b.Target.Has(k) && !a.peak[k] && a.standing == Active && i < len(a.shared.shares):
				b.Target = b.Target.With(k, amountOf(a.shared.shares[i][k]))
			}
		}
		given[whole[i].Actual.Name] = b
	}
	rules := a.vpa.Rules
	rules.Sharing = &policy.Sharing{Kinds: a.kinds}
	if a.standing == Active {
		if !a.shared.by.KeepsCPULimit {
			rules.Sharing.CPULimit = a.shared.by.Settings.CPULimit
		}
		rules.Sharing.NodeCPU = a.shared.node.Allocatable.Value(resources.CPU)
		rules.Sharing.Daemon = a.shared.Sharing.Daemon
	}
	return policy.Fit(pod, given, rules, a.vpa.Ranges.Ranges).Containers
}

// amountOf rounds a share down to whole millicores or bytes, so that the sum of all shares fits. It tolerates
// rounding errors of sums.
func amountOf(share float64) resources.Amount { return resources.Amount(math.Floor(share + 1e-6)) }

// without removes a kind from the target of a container.
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
