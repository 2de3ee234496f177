// Package policy turns a recommendation into the resources of one pod.
//
// Cap is the last step of the recommender: it clamps bounds to the minimum and maximum of a
// container's Rule. Fit applies LimitRanges and the rules of the VPA, and keeps the proportion of
// limits to requests. The webhook, the updater and the backtester all call Fit, so that their
// results agree. Rule.ApplyBoost adds the startup boost to the result, and EvaluateBoost ends it.
//
// Results contain only amounts to write: an absent kind stays unchanged. Every cut or raise has a
// Note. The package ignores nodes and quotas.
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
	// Declared is the memory proportion of the manifest, if it was altered since; zero: it was not.
	Declared Proportion
}

// LimitsToZero reports whether the container has a limit of zero for a kind.
func (c Container) LimitsToZero(k resources.Kind) bool {
	limit, limited := c.Limits.Get(k)
	return limited && limit <= 0
}

// Pod is the input of Fit: the ordinary containers in order, without init containers and sidecars.
type Pod struct {
	Containers []Container
	// StaysBurstable means that these containers alone must keep the pod Burstable (keepBurstable).
	StaysBurstable bool
	InitTotals     InitTotals
	// Rounded is the larger number of requests or limits that were rounded up to whole amounts.
	Rounded resources.List
}

// ContainerTarget holds the requests and limits to write for a container.
type ContainerTarget struct {
	Name             string
	Requests, Limits resources.List   // to be written, absent kinds stay unchanged
	Bounds           resources.Bounds // recommendation after all cuts, or empty
	Notes            []Note
	WithoutLimit     [resources.Kinds]bool // limits to remove, only at pod creation
	MemoryLimit      LimitSpan             // tolerance of a separate memory limit
	Declared         Proportion            // of the memory limit, to be stored; zero is none
}

// Result has one entry for each container of the pod, in the pod's order.
type Result struct {
	Containers []ContainerTarget
}

// maxRefits is how often Fit is repeated on its own result until that is stable.
const maxRefits = 4

// Fit returns the resources of a pod for a recommendation, given the rules of its VPA and the
// LimitRanges of its namespace.
//
// Without LimitRanges, the result is the target within the minimum and maximum of the rule. A limit
// grows in proportion to its request, so equal ones stay equal, and a missing limit stays missing.
// With RequestsOnly, limits stay unchanged and cap their requests.
//
// LimitRanges apply in this order: the pod range scales all containers in proportion, the container
// range and then the rule bound each container, and limits follow their requests. If a later step
// violates the pod range again, the slack of the other containers is used.
//
// A container without a recommendation, or with a rule that is Off, stays unchanged but counts in
// the sums of the pod. If the pod range would reject the pod, containers without a recommendation
// also move in proportion, with the Note MovedWithOthers, and containers that are Off as a last
// resort. Notes name the cuts of the target.
//
// If the LimitRanges admit the current pod but not the result, Ranges.Admit moves the result toward
// the current resources. If they admit neither, the nearest result is returned with a Note that is
// Refused.
//
// Fit is pure, independent of the order of the containers, and idempotent: a pod with the result
// gets the same result. To correct rounding of limits, Fit repeats on its own result with
// LimitRanges. A rejected result may be unstable, but no pod gets it.
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

// withoutZeroLimits drops kinds limited to zero: the API server rejects requests above a limit.
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
			recommendation[c.Name] = withoutKind(b, k)
		}
	}
	return recommendation
}

func fitUnshared(pod Pod, recommendation map[string]resources.Bounds, rules Rules, ranges Ranges) Result {
	pod = withDeclaredMemory(pod, recommendation, rules) // limits keep the proportion of the template
	if rules.SeparateMemoryLimit {                       // recipes such as following, see Rules
		return fitSeparately(pod, recommendation, rules, ranges)
	}
	p := newProblem(pod, recommendation, rules, ranges)
	_, result := p.solveJoining()
	return result
}

// solveJoining is Fit for limits that follow their requests. It also returns the problem that it solved.
func (p *problem) solveJoining() (*problem, Result) {
	result := p.solveStable()
	for _, off := range [...]bool{false, true} {
		for k := range resources.Kind(resources.Kinds) {
			if result.has(Note{k, OutsidePodRange}) {
				p, result = p.moveUnrecommended(k, off, result)
			}
		}
	}
	return p, result
}

func (r Result) has(n Note) bool {
	return slices.ContainsFunc(r.Containers, func(f ContainerTarget) bool { return slices.Contains(f.Notes, n) })
}

func (p *problem) solveStable() Result {
	result := p.solve()
	if p.ranges == (Ranges{}) {
		return result
	}
	next := p.clone()
	for range maxRefits {
		next.setCurrent(result)
		repeated := next.solve()
		if sameAmounts(result, repeated) {
			break
		}
		result = repeated
	}
	return result
}

func sameAmounts(a, b Result) bool {
	return slices.EqualFunc(a.Containers, b.Containers, func(x, y ContainerTarget) bool {
		return x.Requests == y.Requests && x.Limits == y.Limits && x.Bounds == y.Bounds
	})
}

type problem struct {
	parts  []part
	ranges Ranges
}

type part struct {
	container      Container
	rule           Rule
	recommendation resources.Bounds // empty if the container stays unchanged
	// movedResources are the amounts, also in container, of one that moves without a
	// recommendation.
	movedResources Container

	// Decided first: limits that do not follow their requests, limits to remove and to write,
	// notes.
	fixedLimits, removedLimits [resources.Kinds]bool
	writtenLimits              resources.List
	memoryLimit                LimitSpan
	notes                      []Note
}

func (p *problem) clone() *problem { return &problem{slices.Clone(p.parts), p.ranges} }

func newProblem(pod Pod, recommendation map[string]resources.Bounds, rules Rules, ranges Ranges) problem {
	p := problem{parts: make([]part, len(pod.Containers)), ranges: ranges}
	rule := rules.Lookup()
	for i, c := range pod.Containers {
		r := rule(c.Name)
		p.parts[i] = part{container: c, rule: r, fixedLimits: [resources.Kinds]bool{r.RequestsOnly, r.RequestsOnly}}
		if !r.Off {
			p.parts[i].recommendation = recommendation[c.Name]
			p.parts[i].applySharing(ranges)
		}
	}
	return p
}

func (p *problem) setCurrent(r Result) {
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
			Name: part.container.Name, Bounds: part.recommendation, Limits: part.writtenLimits, WithoutLimit: part.removedLimits, MemoryLimit: part.memoryLimit, Notes: slices.Clone(part.notes),
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
		p.parts[i].writeMoved(f)
	}
	p.noteRefusals(result.Containers)
	return result
}

// fitKind fits one kind of all containers. Scratch space: moved, all false, and members.
func (p *problem) fitKind(out []ContainerTarget, k resources.Kind, moved []bool, members []member) {
	minSum, maxSum := p.ranges.Pod.Min.Value(k), p.ranges.Pod.Max.Value(k)
	for number := range len(roles(&resources.Bounds{})) {
		for i := range out {
			members[i] = p.member(i, k, *roles(&out[i].Bounds)[number])
		}
		balance(members, k, minSum, maxSum)
		for i := range members {
			if m := &members[i]; m.free {
				m.clampToBounds(p, i, k)
				if number == 0 {
					out[i].Notes = append(out[i].Notes, m.notes...)
				}
			}
		}
		balance(members, k, minSum, maxSum)
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

// ordered keeps lower <= target <= upper, so that a pod with exactly its target is within bounds.
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

// member returns the contribution of container i if it gets role, the target or a bound.
func (p *problem) member(i int, k resources.Kind, role resources.List) member {
	part := &p.parts[i]
	m := member{
		name:     part.container.Name,
		value:    max(part.container.Requests.Value(k), 0),
		maxValue: math.MaxInt64,
		limit:    p.ranges.limitBasis(part.container, k),
		request:  max(part.container.Requests.Value(k), 0),
		pinned:   true,
	}
	if value, ok := role.Get(k); ok {
		m.value, m.free, m.pinned = max(value, 0), true, part.fixedLimits[k]
	}
	return m
}

func (p *problem) setLimits(i int, f *ContainerTarget) {
	part := &p.parts[i]
	if f.Requests.Empty() {
		return
	}
	var reasons [resources.Kinds]Reason
	follows := false
	for k := range resources.Kind(resources.Kinds) {
		if part.fixedLimits[k] {
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

// scaleLimit scales a limit with its request, rounded down. It returns 0 and a reason without one.
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

func (p *problem) noteRefusals(out []ContainerTarget) {
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

// outside reports whether a request and a limit violate a range. A limit of 0 is no limit.
func outside(r Range, k resources.Kind, request, limit resources.Amount) bool {
	minimum, maximum := r.Min.Value(k), r.Max.Value(k)
	if minimum > 0 && (request < minimum || limit > 0 && limit < minimum) {
		return true
	}
	if ratio := r.MaxRatio.Value(k); ratio > 0 && limit > 0 {
		if smallest, _ := limit.ProportionUp(1000, ratio); request < smallest {
			return true
		}
	}
	return maximum > 0 && (limit > maximum || request > maximum)
}
