// Package policy turns a recommendation into what one pod may really get.
//
// Cap is the recommender's last step: it keeps bounds inside the minimum and maximum of a container's Rule. Fit answers
// "what would this pod get": it moves the recommendation into the LimitRanges of the namespace and the rules of the VPA
// and keeps the proportion of limits to requests. The webhook, the updater and the backtester all call it, so they
// cannot disagree. Rule.Boosted adds the startup boost to what Fit returned, and JudgeBoost says when it ends.
//
// Results hold only what is to be written: a kind that is absent stays as the
// pod has it. Every cut or raise has a Note.
//
// It does not choose the VPA of a pod (package target), knows no API
// objects (package convert) and never looks at nodes or quotas.
package policy

import (
	"maps"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Container is a container of a pod with its current resources.
type Container struct {
	Name             string
	Requests, Limits resources.List
	// Declared is the memory with which the container was written, where a change has since
	// given its limit another proportion to the request. Zero: it has the proportion still.
	Declared Proportion
}

// LimitsToZero reports whether the container has a limit of zero for a kind.
func (c Container) LimitsToZero(k resources.Kind) bool {
	limit, limited := c.Limits.Get(k)
	return limited && limit <= 0
}

// Pod is the part of a pod that Fit needs: its ordinary containers in order.
// Init containers and native sidecars are not sized.
type Pod struct {
	Containers []Container
	// StaysBurstable is set if only these containers make the pod Burstable and it must stay Burstable; see
	// keepBurstable.
	StaysBurstable bool
	Unsized        Unsized
	// Rounded is the number of requests or of limits, whichever is larger, that were rounded up to whole amounts.
	Rounded resources.List
}

// ContainerTarget holds the requests and limits to write for a container.
type ContainerTarget struct {
	Name             string
	Requests, Limits resources.List   // to be written; absent kinds stay as they are
	Bounds           resources.Bounds // the recommendation after all cuts; empty without one
	Notes            []Note
	WithoutLimit     [resources.Kinds]bool // limits that are taken away; only of a pod that is being created
	MemoryLimit      LimitSpan             // where the memory limit does not follow the request
	Declared         Proportion            // of that limit, to be remembered for the next time; zero: none
}

// Result has one entry for each container of the pod, in the pod's order.
type Result struct {
	Containers []ContainerTarget
}

// maxRefits is how often Fit applies itself to its own result until that does not change any more.
const maxRefits = 4

// Fit returns what a pod would get from a recommendation, given the rules of
// its VPA and the LimitRanges of its namespace.
//
// Without LimitRanges that is the target, raised to the minimum and cut to the maximum of the rule. A limit grows in
// proportion to its request, so one that equals its request goes on doing so, and one that is not there stays away;
// with RequestsOnly limits stay, and cut their requests (member.enclose in balance.go and problem.setLimits). All else
// here, in balance.go and in rule.go is for LimitRanges.
//
// With them, in this order: the pod range scales all containers in proportion, the container range and then the rule
// bound each of them, limits follow their requests. Where a later step undid what the pod range demands, the slack of
// the other containers is used.
//
// A container without recommendation, or whose rule is Off, is left alone but counts in the sums of the pod. Only where
// a pod range would refuse the pod otherwise such containers move, too, in proportion with the others, with the Note
// MovedWithOthers; those that are Off only where it does not help to move the rest. Notes name the cuts of the target.
// If the LimitRanges admit the current pod but not the result, the result is moved toward the current sizes
// (Ranges.Admit). If they admit neither, the nearest result is returned with a Note that Refused.
//
// Where memory limits do not follow the requests, separate.go says what they do, and shared.go
// does of pods that share their node.
//
// Fit is pure and does not depend on the order of the containers. It is idempotent: a pod that has the result gets the
// same result. Rounding of limits could undo that by a unit, so with LimitRanges Fit repeats itself on its own result
// until that is stable. One that a LimitRange will refuse may move on, which nobody sees: no pod has it.
func Fit(pod Pod, recommendation map[string]resources.Bounds, rules Rules, ranges Ranges) Result {
	recommendation = withoutZeroLimits(pod, recommendation)
	var result Result
	if rules.Sharing != nil {
		result = fitShared(pod, recommendation, rules, ranges)
	} else if result = fitUnshared(pod, recommendation, rules, ranges); pod.StaysBurstable {
		keepBurstable(pod, result, rules, ranges)
	}
	if ranges != (Ranges{}) {
		result.Containers = ranges.Admit(pod, make([]ContainerTarget, len(pod.Containers)), result.Containers)
	}
	return result
}

// withoutZeroLimits drops the kinds that a container limits to zero from a recommendation, because the API
// server refuses a request above such a limit.
func withoutZeroLimits(pod Pod, recommendation map[string]resources.Bounds) map[string]resources.Bounds {
	cloned := false
	for _, c := range pod.Containers {
		for k := range resources.Kind(resources.Kinds) {
			b, recommended := recommendation[c.Name]
			if !recommended || !c.LimitsToZero(k) {
				continue
			}
			if !cloned {
				recommendation, cloned = maps.Clone(recommendation), true
			}
			recommendation[c.Name] = dropped(b, k)
		}
	}
	return recommendation
}

// fitUnshared is Fit of a pod that does not share its node.
func fitUnshared(pod Pod, recommendation map[string]resources.Bounds, rules Rules, ranges Ranges) Result {
	pod = asDeclared(pod, recommendation, rules)
	if rules.SeparateMemoryLimit {
		return fitSeparately(pod, recommendation, rules, ranges)
	}
	p := newProblem(pod, recommendation, rules, ranges)
	_, result := p.fit()
	return result
}

// fit is Fit where limits follow their requests. It also returns the problem that it solved.
func (p *problem) fit() (*problem, Result) {
	result := p.stable()
	for _, off := range [...]bool{false, true} {
		for k := range resources.Kind(resources.Kinds) {
			if result.has(Note{k, OutsidePodRange}) {
				p, result = p.joined(k, off, result)
			}
		}
	}
	return p, result
}

// has reports whether some container has a note.
func (r Result) has(n Note) bool {
	return slices.ContainsFunc(r.Containers, func(f ContainerTarget) bool { return slices.Contains(f.Notes, n) })
}

// stable solves p, and with LimitRanges p as it would be with the result, until that is the same.
func (p *problem) stable() Result {
	result := p.solve()
	if p.ranges == (Ranges{}) {
		return result
	}
	next := p.clone()
	for range maxRefits {
		next.adopt(result)
		again := next.solve()
		if sameAmounts(result, again) {
			break
		}
		result = again
	}
	return result
}

func sameAmounts(a, b Result) bool {
	return slices.EqualFunc(a.Containers, b.Containers, func(x, y ContainerTarget) bool {
		return x.Requests == y.Requests && x.Limits == y.Limits && x.Bounds == y.Bounds
	})
}

// problem is one pod under calculation.
type problem struct {
	parts  []part
	ranges Ranges
}

// part is one container of the problem.
type part struct {
	container Container
	rule      Rule
	given     resources.Bounds // the recommendation, empty if the container is left alone
	// moved holds what the container gets without recommendation; container has it already.
	moved Container

	// What follows is decided before all else: limits that do not follow their requests, of
	// these those that are written or taken away, and what is said of them.
	keeps, drops [resources.Kinds]bool
	writes       resources.List
	span         LimitSpan
	notes        []Note
}

func (p *problem) clone() *problem { return &problem{slices.Clone(p.parts), p.ranges} }

func newProblem(pod Pod, recommendation map[string]resources.Bounds, rules Rules, ranges Ranges) problem {
	p := problem{parts: make([]part, len(pod.Containers)), ranges: ranges}
	rule := rules.Lookup()
	for i, c := range pod.Containers {
		r := rule(c.Name)
		p.parts[i] = part{container: c, rule: r, keeps: [resources.Kinds]bool{r.RequestsOnly, r.RequestsOnly}}
		if !r.Off {
			p.parts[i].given = recommendation[c.Name]
			p.parts[i].share(ranges)
		}
	}
	return p
}

// adopt makes the result the current resources of the pod.
func (p *problem) adopt(r Result) {
	for i, f := range r.Containers {
		c := &p.parts[i].container
		c.Requests, c.Limits = c.Requests.Override(f.Requests), c.Limits.Override(f.Limits)
	}
}

func (p *problem) solve() Result {
	result := Result{Containers: make([]ContainerTarget, len(p.parts))}
	for i := range p.parts {
		part := &p.parts[i]
		result.Containers[i] = ContainerTarget{
			Name: part.container.Name, Bounds: part.given, Limits: part.writes, WithoutLimit: part.drops, MemoryLimit: part.span, Notes: slices.Clone(part.notes),
		}
	}
	moved, members := make([]bool, len(p.parts)), make([]member, len(p.parts))
	for k := range resources.Kind(resources.Kinds) {
		p.fitKind(result.Containers, k, moved, members)
		clear(moved)
	}
	for i := range result.Containers {
		f := &result.Containers[i]
		f.Requests = f.Bounds.Target
		p.setLimits(i, f)
		p.parts[i].give(f)
	}
	p.judge(result.Containers)
	return result
}

// fitKind moves one kind of all containers, first the target and then the bounds, and keeps the bounds around the
// target where the pod range moved them apart.
//
// It works in moved, in which nothing is yet, and in members.
func (p *problem) fitKind(out []ContainerTarget, k resources.Kind, moved []bool, members []member) {
	least, most := p.ranges.Pod.Min.Value(k), p.ranges.Pod.Max.Value(k)
	for number := range len(roles(&resources.Bounds{})) {
		for i := range out {
			members[i] = p.member(i, k, *roles(&out[i].Bounds)[number])
		}
		balance(members, k, least, most)
		for i := range members {
			if m := &members[i]; m.free {
				m.enclose(p, i, k)
				if number == 0 {
					out[i].Notes = append(out[i].Notes, m.notes...)
				}
			}
		}
		balance(members, k, least, most)
		for i := range members {
			m := &members[i]
			if !m.free {
				continue
			}
			role := roles(&out[i].Bounds)[number]
			*role = role.With(k, m.value)
			moved[i] = moved[i] || m.moved
			if number == 0 && m.moved {
				out[i].Notes = append(out[i].Notes, Note{k, MovedToPodRange})
			}
		}
	}
	for i := range out {
		if moved[i] {
			out[i].Bounds = ordered(out[i].Bounds, k)
		}
	}
}

// ordered keeps lower <= target <= upper: a bound on the wrong side of the
// target would call a pod that has exactly its target out of range.
func ordered(b resources.Bounds, k resources.Kind) resources.Bounds {
	target, ok := b.Target.Get(k)
	if !ok {
		return b
	}
	if b.Lower.Value(k) > target {
		b.Lower = b.Lower.With(k, target)
	}
	if upper, ok := b.Upper.Get(k); ok && upper < target {
		b.Upper = b.Upper.With(k, target)
	}
	return b
}

// member returns the part that container i plays in the sums of kind k when
// the given role (target or a bound) is what it gets.
func (p *problem) member(i int, k resources.Kind, role resources.List) member {
	part := &p.parts[i]
	m := member{
		name:    part.container.Name,
		value:   max(part.container.Requests.Value(k), 0),
		most:    math.MaxInt64,
		limit:   p.ranges.limitBasis(part.container, k),
		request: max(part.container.Requests.Value(k), 0),
		pinned:  true,
	}
	if value, ok := role.Get(k); ok {
		m.value, m.free, m.pinned = max(value, 0), true, part.keeps[k]
	}
	return m
}

// setLimits derives the limits of container i from its new requests.
func (p *problem) setLimits(i int, f *ContainerTarget) {
	part := &p.parts[i]
	if f.Requests.Empty() {
		return
	}
	var reasons [resources.Kinds]Reason
	follows := false
	for k := range resources.Kind(resources.Kinds) {
		if part.keeps[k] {
			continue
		}
		limit, reason := scaleLimit(p.ranges.limitBasis(part.container, k), part.container.Requests.Value(k), f.Requests.Value(k))
		if limit > 0 {
			f.Limits, follows = f.Limits.With(k, limit), true
		}
		reasons[k] = reason
	}
	if !follows {
		return
	}
	for k, reason := range reasons {
		if reason != 0 {
			f.Notes = append(f.Notes, Note{resources.Kind(k), reason})
		}
	}
}

// scaleLimit returns the limit that is to a wanted request what limit is to
// request, rounded down, and 0 with a reason where there is none.
func scaleLimit(limit, request, wanted resources.Amount) (resources.Amount, Reason) {
	switch {
	case limit <= 0:
		return 0, NoOriginalLimit
	case wanted <= 0:
		return 0, NoRequest
	case request <= 0 || request == limit:
		return wanted, 0
	}
	scaled, ok := limit.Proportion(wanted, request)
	if !ok {
		return scaled, LimitOverflow
	}
	return scaled, 0
}

// judge adds a Note where the LimitRanges will refuse the result.
func (p *problem) judge(out []ContainerTarget) {
	for k := range resources.Kind(resources.Kinds) {
		requests, limits := resources.Amount(0), resources.Amount(0)
		for i := range out {
			f, c := &out[i], p.parts[i].container
			request, written := f.Requests.Get(k)
			if !written {
				request = max(c.Requests.Value(k), 0)
			}
			limit, limited := f.Limits.Get(k)
			if !limited {
				limit = p.ranges.limitBasis(c, k)
			}
			requests, limits = requests.Add(request), limits.Add(limit)
			if (written || limited) && outside(p.ranges.Container, k, request, limit) {
				f.Notes = append(f.Notes, Note{k, OutsideRange})
			}
		}
		if !outside(p.ranges.Pod, k, requests, limits) {
			continue
		}
		for i := range out {
			if out[i].Requests.Has(k) || out[i].Limits.Has(k) {
				out[i].Notes = append(out[i].Notes, Note{k, OutsidePodRange})
			}
		}
	}
}

// outside reports whether a request and a limit (0 for none) break a range.
func outside(r Range, k resources.Kind, request, limit resources.Amount) bool {
	least, most := r.Min.Value(k), r.Max.Value(k)
	if least > 0 && (request < least || limit > 0 && limit < least) {
		return true
	}
	if ratio := r.MaxRatio.Value(k); ratio > 0 && limit > 0 {
		if smallest, _ := limit.ProportionUp(1000, ratio); request < smallest {
			return true
		}
	}
	return most > 0 && (limit > most || request > most)
}
