package disruption

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// Decision is what can be done with a pod in place.
type Decision uint8

// The decisions. All but Go and Evict come with a Reason.
const (
	Wait         Decision = iota // not now
	Go                           // resize
	Busy                         // a resize is under way; only another target may replace it
	JustRefused                  // the node refused a resize as infeasible; another target may replace it
	StillRefused                 // the node is known to refuse the current target
	Evict                        // evict: a resize did not come about
)

// Situation is what Decide needs besides the pod.
type Situation struct {
	Mode    Mode
	Ungated bool // see VPA.Ungated
	Budget  *Budget
	State   PodStates // of the pods of the plan before
	Config  Config
	Now     time.Time

	protected reason.Reason // why Mode is InPlace in place of the InPlaceOrRecreate of the VPA; empty: it is not
}

// Decide says what can be done with the pod in place. Of these rows the first that holds
// counts, in the order of the reference VPA; "other" is InPlaceOrRecreate:
//
//	mode     the pod                                       decision
//	InPlace  (the mode is not enabled)                     Wait
//	any      has no known owner that wants pods            Wait
//	any      has an owner with too few, and needs budget   Wait (with FreeResizes this row is the last)
//	any      is pending                                    Wait
//	InPlace  is known to be refused these sizes            StillRefused
//	InPlace  was just refused                              JustRefused
//	InPlace  is in a resize                                Busy
//	other    is in a resize, or known to be refused        Wait or Evict
//	any      needs no budget                               Go
//	any      needs budget                                  Go, or Wait if there is none
func (s Situation) Decide(p *Pod) (Decision, reason.Reason) {
	noBudget, resizing, inPlace := s.needsNoBudget(p), p.Resize != NotResizing, s.Mode == InPlace
	problem := s.Budget.problem(p)
	switch {
	case inPlace && !s.Config.InPlaceMode && !s.Ungated:
		return Wait, reason.ModeNotEnabled
	case problem == reason.NoOwner:
		return Wait, problem
	case problem != "" && !noBudget && !s.Config.FreeResizes:
		return Wait, problem
	case p.Pending:
		return Wait, reason.NotRunning
	case inPlace && s.nodeRefuses(p):
		return StillRefused, reason.Infeasible
	case inPlace && p.Resize == ResizeInfeasible:
		return JustRefused, reason.Infeasible
	case inPlace && resizing:
		return Busy, unresized(p.Resize)
	case resizing, !inPlace && s.State.NodeRefuses(p):
		return s.fallback(p)
	case noBudget:
		return Go, ""
	}
	if why := s.Budget.Denies(p); why != "" {
		return Wait, why
	}
	return Go, ""
}

// nodeRefuses reports whether the node is known to refuse what the pod would get. For a pod that lacks memory, on a
// node that gives it no other CPU, it was refused for its CPU alone: it is asked for memory.
func (s Situation) nodeRefuses(p *Pod) bool {
	return s.State.NodeRefuses(p) && (!p.WantsOOMResize() || !p.CPURefused())
}

// needsNoBudget reports whether a resize of the pod needs no budget. It is still counted
// against the budget of others, as in the reference VPA.
func (s Situation) needsNoBudget(p *Pod) bool {
	return p.IsOOMResize() || s.Config.FreeResizes && !p.WouldRestart()
}

// Evictable returns why the pod may not be evicted now, empty if it may.
func (s Situation) Evictable(p *Pod) reason.Reason {
	if p.Pending || p.Resize == NotResizing {
		return s.Budget.Denies(p)
	}
	_, why := s.fallback(p)
	return why
}

// fallback says whether a pod whose resize did not come about is evicted: never for a share alone,
// unless it lacks memory and does not work.
func (s Situation) fallback(p *Pod) (Decision, reason.Reason) {
	if p.awaitsShare() && !p.starved() {
		return Wait, unresized(p.Resize)
	}
	age := s.Now.Sub(s.State.Since(p, s.Now))
	waits := p.Resize == ResizeDeferred && age <= DeferredTimeout ||
		(p.Resize == ResizeInProgress || p.Resize == ResizeError && p.TakesMemory()) && age <= InProgressTimeout
	if waits {
		return Wait, unresized(p.Resize)
	}
	if why := s.Budget.Denies(p); why != "" {
		return Wait, why
	}
	return Evict, ""
}

// awaitsShare reports whether the resize that is under way changes nothing but what the pod shares.
func (p *Pod) awaitsShare() bool {
	if p.Share == nil || p.Resize == NotResizing {
		return false
	}
	var shared [resources.Kinds]bool
	for i := range p.Share.Peak {
		for k := range resources.Kind(resources.Kinds) {
			shared[k] = shared[k] || p.Share.Kinds[k] && p.Share.Peak[i].Requests.Has(k)
		}
	}
	some := false
	for i := range p.Containers {
		asked, has := &p.Containers[i].Spec, &p.Containers[i].Actual
		for k := range resources.Kind(resources.Kinds) {
			if asked.Requests.Value(k) == has.Requests.Value(k) && asked.Limits.Value(k) == has.Limits.Value(k) {
				continue
			}
			if some = true; !shared[k] {
				return false
			}
		}
	}
	return some
}

// unresized says why a pod in this state is left alone.
func unresized(r ResizeState) reason.Reason {
	switch r {
	case ResizeDeferred:
		return reason.Deferred
	case ResizeInfeasible:
		return reason.Infeasible
	case ResizeError, ResizeUnclear:
		return reason.ResizeFailed
	}
	return reason.WaitingForNode
}

// Budget counts how many pods of each owner may be away at once. It lasts for
// one plan; evictions and resizes draw from it alike.
type Budget struct {
	owners []owner
}

// owner is the state of one Group.
type owner struct {
	problem    reason.Reason // why no pod of it may be disrupted, or empty
	wanted     int           // replicas
	tolerated  int           // how many of them may be away
	running    int           // pods that are not pending
	ready      int
	spent      int             // running pods disrupted by this plan
	spentReady int             // those of them that were ready
	leaving    []RestartHolder // ready pods that will not be for a while
	crowded    bool            // a pod leaves its node, by this plan
}

// NewBudget counts the pods of a VPA.
func NewBudget(v *VPA, c Config) *Budget {
	b := &Budget{owners: make([]owner, len(v.Groups))}
	alive := make([]int, len(v.Groups))
	for i := range v.Pods {
		p := &v.Pods[i]
		o := b.of(p)
		if o == nil {
			continue
		}
		alive[p.Group]++
		if !p.Pending {
			o.running++
			if p.Ready {
				o.ready++
			}
		}
	}
	least := cmp.Or(v.MinReplicas, c.MinReplicas)
	for i, g := range v.Groups {
		o := &b.owners[i]
		o.wanted = g.Replicas
		if g.Replicas == Unknown {
			o.wanted = alive[i]
		}
		o.tolerated = int(float64(o.wanted) * c.Tolerance)
		switch {
		case o.wanted <= 0:
			o.problem = reason.NoOwner
		case alive[i] < least:
			o.problem = reason.BelowMinReplicas
		}
	}
	return b
}

// of returns the owner of a pod, nil if it is not known.
func (b *Budget) of(p *Pod) *owner {
	if p.Group < 0 || p.Group >= len(b.owners) {
		return nil
	}
	return &b.owners[p.Group]
}

// problem is why no pod of the owner may be disrupted at all, or empty.
func (b *Budget) problem(p *Pod) reason.Reason {
	if o := b.of(p); o != nil {
		return o.problem
	}
	return reason.NoOwner
}

// Denies returns why the pod may not be disrupted now, empty if it may. A pending pod costs nothing. One that is ready
// must leave enough ready pods behind, one that is not enough running ones.
func (b *Budget) Denies(p *Pod) reason.Reason {
	if why := b.problem(p); why != "" {
		return why
	}
	if p.Pending {
		return ""
	}
	o := b.of(p)
	leaving := len(o.leaving)
	if slices.ContainsFunc(o.leaving, func(h RestartHolder) bool { return h.UID == p.UID }) {
		leaving--
		if _, waits := BlockingRestart(p.UID, o.leaving); !waits {
			leaving = 0 // the others come after it
		}
	}
	have, spent := o.running, o.spent+leaving
	if p.Ready {
		have, spent = o.ready, o.spentReady+leaving
	}
	switch {
	case have-spent > o.wanted-o.tolerated:
		return ""
	// Without any tolerance one pod may still go while all are there.
	case have == o.wanted && o.tolerated == 0 && o.spent+leaving == 0:
		return ""
	case o.spent+leaving > 0:
		return reason.BudgetSpent
	}
	return reason.NoBudget
}

// deniesLeaving is Denies for an eviction for the sake of what the pod shares: the last pod of its owner
// that is ready stays, since others would gain less than those lose that it serves.
func (b *Budget) deniesLeaving(p *Pod) reason.Reason {
	if b.lastReady(p) {
		return cmp.Or(b.Denies(p), reason.NoBudget)
	}
	return b.Denies(p)
}

// lastReady reports whether no other pod of the owner is ready, or stays so.
func (b *Budget) lastReady(p *Pod) bool {
	o := b.of(p)
	return o != nil && p.Ready && o.ready-o.spentReady-len(o.leaving) <= 1
}

// leaves records that a pod that is still ready will not be for a while, because of
// an earlier plan. It does not stand in its own way.
func (b *Budget) leaves(p *Pod, one RestartHolder) {
	if o := b.of(p); o != nil && p.Ready {
		o.leaving = append(o.leaving, one)
	}
}

// leavesCrowd reports whether a pod of the same owner leaves its node by this plan.
func (b *Budget) leavesCrowd(p *Pod) bool {
	o := b.of(p)
	return o != nil && o.crowded
}

// Spend records that the pod is disrupted.
func (b *Budget) Spend(p *Pod) {
	o := b.of(p)
	if o == nil || p.Pending {
		return
	}
	o.spent++
	if p.Ready {
		o.spentReady++
	}
}

// Assessment says how urgent a change of one pod is, and whether it is worth one at all.
type Assessment struct {
	Distance
	QuickOOM bool          // a container ran out of memory soon after it started
	Reason   reason.Reason // why the pod is not worth a change; empty if it is
}

// Cause is why an assessed pod should be changed.
func (a Assessment) Cause() Cause {
	switch {
	case a.QuickOOM:
		return OutOfMemory
	case a.OutOfBounds:
		return OutOfBounds
	}
	return Changed
}

// moreUrgent orders assessments: pods that grow first, then the larger change.
func (a Assessment) moreUrgent(b Assessment) int {
	switch {
	case a.Grows && !b.Grows:
		return -1
	case b.Grows && !a.Grows:
		return 1
	}
	return cmp.Compare(b.Change, a.Change)
}

// Assess compares what a pod has with what it would get. Containers that the webhook did not see do not count.
func Assess(v *VPA, p *Pod, c Config, now time.Time) Assessment {
	a := Assessment{Distance: p.Distance()}
	a.QuickOOM = p.QuickOOM(cmp.Or(v.QuickOOM, c.QuickOOM), now)
	a.Reason = a.judge(p, c, now)
	if a.Reason == "" && (!v.Mode.Resizes() || p.WouldRestart() && (!p.IsOOMResize() || !p.killedLately(now))) {
		a.Reason = v.protection(p, !v.Mode.Resizes())
	}
	return a
}

func (a Assessment) judge(p *Pod, c Config, now time.Time) reason.Reason {
	switch {
	case p.Boosted && !p.CPURefused():
		return reason.Boosted
	case p.Boosted && !p.WantsOOMResize(): // it would be boosted anew, and again not give it back
		return reason.StaticCPU
	case !slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Recommended() }):
		return reason.NoRecommendation
	case p.PodLevel:
		return reason.PodLevelResources
	case !p.Changed():
		return reason.Unchanged
	case p.ViolatesLimitRange():
		return reason.OutsideLimitRange
	}
	if !a.OutOfBounds && !a.QuickOOM {
		if p.Started.IsZero() || now.Before(p.Started.Add(c.Lifetime)) {
			return reason.TooYoung
		}
		if a.Change < c.Threshold {
			return reason.SmallChange
		}
	}
	if a.QuickOOM && a.Change == 0 {
		return reason.SmallChange
	}
	return ""
}

// ViolatesLimitRange reports whether a LimitRange would refuse the pod.
func (p *Pod) ViolatesLimitRange() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return slices.ContainsFunc(c.Target.Notes, policy.Note.Refused) })
}

// Admits reports whether one container of the pod meets all requirements.
func (v *VPA) Admits(p *Pod) bool {
	return len(v.Requirements) == 0 || slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Recommended() && !slices.ContainsFunc(v.Requirements, func(r Requirement) bool { return !c.meets(r) })
	})
}

// meets reports whether the container would change as r demands. A missing request counts as 0, and
// kinds that r does not name do not matter.
func (c *Container) meets(r Requirement) bool {
	met := false
	for k := range resources.Kind(resources.Kinds) {
		request := c.Actual.Requests.Value(k)
		target, ok := c.Target.Bounds.Target.Get(k)
		met = met || ok && r.Kinds[k] && (r.Higher && target > request || !r.Higher && target < request)
	}
	return met
}

// Distance is how far a pod is from what it would get.
type Distance struct {
	OutOfBounds bool    // a request is missing or outside the recommended bounds
	Grows       bool    // a request is missing or below its target
	Change      float64 // relative change of the pod's sums, added up over the kinds
}

// Distance follows from the amounts. Containers that the webhook did not see do not count. The sums run over whole
// pods, so opposite changes of two containers cancel out, as in the reference VPA. Where a memory limit does not follow
// the request, one that is too far from what it should be is out of bounds, too, and the larger of both changes counts.
func (p *Pod) Distance() Distance {
	var a Distance
	var sized [resources.Kinds]bool
	var requests, targets [resources.Kinds]resources.Amount
	var limits, wanted resources.Amount
	for i := range p.Containers {
		c := &p.Containers[i]
		if !c.Observed || !c.Recommended() {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			target, ok := c.Target.Bounds.Target.Get(k)
			if !ok {
				continue
			}
			request, has := c.Actual.Requests.Get(k)
			sized[k] = true
			requests[k], targets[k] = requests[k].Add(request), targets[k].Add(target)
			a.Grows = a.Grows || !has || target > request
			a.OutOfBounds = a.OutOfBounds || !has || outside(c.Target.Bounds, k, request)
		}
		if span := c.Target.MemoryLimit; span != (policy.LimitSpan{}) {
			has, gets := c.Actual.Limits.Value(resources.Memory), c.Target.Limits.Value(resources.Memory)
			limits, wanted = limits.Add(has), wanted.Add(gets)
			a.Grows = a.Grows || gets > has
			a.OutOfBounds = a.OutOfBounds || has < span.Least || has > span.Most
		}
	}
	for k, counts := range sized {
		if !counts {
			continue
		}
		change := Relative(resources.Kind(k), requests[k], targets[k])
		if k == int(resources.Memory) && wanted > 0 {
			change = max(change, Relative(resources.Memory, limits, wanted))
		}
		a.Change += change
	}
	return a
}

func outside(b resources.Bounds, k resources.Kind, request resources.Amount) bool {
	lower, hasLower := b.Lower.Get(k)
	upper, hasUpper := b.Upper.Get(k)
	return hasLower && request < lower || hasUpper && request > upper
}

// Relative is the change from a to b in relation to a. Both are taken in thousandths of their unit, and a is at least
// one of them, as in the reference VPA: a pod without requests changes hugely.
func Relative(k resources.Kind, a, b resources.Amount) float64 {
	if k == resources.Memory {
		a, _ = a.Proportion(1000, 1)
		b, _ = b.Proportion(1000, 1)
	}
	a = max(a, 1)
	return float64(max(a-b, b-a)) / float64(a)
}
