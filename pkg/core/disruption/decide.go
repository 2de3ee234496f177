package disruption

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

// Decision is the result of DecisionInput.Decide for a resize in place.
type Decision uint8

// The decisions. All except Proceed and Evict come with a Reason.
const (
	Wait         Decision = iota // not now
	Proceed                      // resize now
	Resizing                     // a resize is in progress, only another target may replace it
	JustRefused                  // the node refused a resize as infeasible, another target may replace it
	StillRefused                 // the node refuses the current target
	Evict                        // a resize was not completed
)

// DecisionInput is the input of Decide in addition to the pod.
type DecisionInput struct {
	Mode    Mode
	Ungated bool // see VPA.Ungated
	Budget  *Budget
	State   PodStates // of the previous plan
	Config  Config
	Now     time.Time

	protected reason.Reason // protection that changed Mode from InPlaceOrRecreate to InPlace; empty: none
}

// Decide returns how a pod can be changed in place. The first matching row counts, in the order of
// the reference VPA. "other" is InPlaceOrRecreate:
//
//	mode     the pod                                       decision
//	InPlace  (the mode is not enabled)                     Wait
//	any      has no known owner with desired pods          Wait
//	any      has an owner with too few, and needs budget   Wait (with FreeResizes this row is the last)
//	any      is pending                                    Wait
//	InPlace  has a target that the node refuses            StillRefused
//	InPlace  was just refused                              JustRefused
//	InPlace  is in a resize                                Resizing
//	other    is in a resize, or has a refused target       Wait or Evict
//	any      needs no budget                               Proceed
//	any      needs budget                                  Proceed, or Wait if there is none
func (s DecisionInput) Decide(p *Pod) (Decision, reason.Reason) {
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
		return Resizing, resizeSkipReason(p.Resize)
	case resizing, !inPlace && s.State.NodeRefuses(p):
		return s.fallback(p)
	case noBudget:
		return Proceed, ""
	}
	if why := s.Budget.Denies(p); why != "" {
		return Wait, why
	}
	return Proceed, ""
}

// Evictable returns why the pod may not be evicted now, or empty.
func (s DecisionInput) Evictable(p *Pod) reason.Reason {
	if p.Pending || p.Resize == NotResizing {
		return s.Budget.Denies(p)
	}
	_, why := s.fallback(p)
	return why
}

// fallback returns Evict if an uncompleted resize timed out and the budget allows it, otherwise
// Wait. A resize of a share alone causes no eviction, except of a pod that is not ready after an
// out-of-memory kill.
func (s DecisionInput) fallback(p *Pod) (Decision, reason.Reason) {
	if p.awaitsShare() && !p.starved() {
		return Wait, resizeSkipReason(p.Resize)
	}
	age := s.Now.Sub(s.State.Since(p, s.Now))
	waits := p.Resize == ResizeDeferred && age <= DeferredTimeout ||
		(p.Resize == ResizeInProgress || p.Resize == ResizeError && p.ShrinksMemory()) && age <= InProgressTimeout
	if waits {
		return Wait, resizeSkipReason(p.Resize)
	}
	if why := s.Budget.Denies(p); why != "" {
		return Wait, why
	}
	return Evict, ""
}

// awaitsShare reports whether the resize in progress changes only kinds that the pod shares.
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

func resizeSkipReason(r ResizeState) reason.Reason {
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

// Budget counts the unavailable pods of each owner during one plan. Evictions and resizes share it.
type Budget struct {
	owners []owner
}

type owner struct {
	problem       reason.Reason // why no pod may be disrupted, or empty
	wanted        int           // desired replicas
	tolerated     int           // maximum of unavailable pods
	running       int           // pods that are not pending
	ready         int
	spent         int             // running pods disrupted by this plan
	spentReady    int             // the ready ones of them
	restarting    []RestartHolder // ready pods that are about to be restarted
	evictsCrowded bool            // this plan evicts one of its pods from a crowded node
}

// NewBudget counts the pods of a VPA.
func NewBudget(v *VPA, c Config) *Budget {
	b := &Budget{owners: make([]owner, len(v.Groups))}
	alive := make([]int, len(v.Groups))
	for i := range v.Pods {
		p := &v.Pods[i]
		o := b.ownerOf(p)
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

func (b *Budget) ownerOf(p *Pod) *owner {
	if p.Group < 0 || p.Group >= len(b.owners) {
		return nil
	}
	return &b.owners[p.Group]
}

func (b *Budget) problem(p *Pod) reason.Reason {
	if o := b.ownerOf(p); o != nil {
		return o.problem
	}
	return reason.NoOwner
}

// Denies returns why the pod may not be disrupted now, or empty. A pending pod costs nothing. After
// a ready pod, enough ready pods must remain, after any other pod enough running pods.
func (b *Budget) Denies(p *Pod) reason.Reason {
	if why := b.problem(p); why != "" {
		return why
	}
	if p.Pending {
		return ""
	}
	o := b.ownerOf(p)
	leaving := len(o.restarting)
	if slices.ContainsFunc(o.restarting, func(h RestartHolder) bool { return h.UID == p.UID }) {
		leaving--
		if _, waits := BlockingRestart(p.UID, o.restarting); !waits {
			leaving = 0 // the others wait for this pod
		}
	}
	have, spent := o.running, o.spent+leaving
	if p.Ready {
		have, spent = o.ready, o.spentReady+leaving
	}
	switch {
	case have-spent > o.wanted-o.tolerated:
		return ""
	// With zero tolerance, one pod may be disrupted while all are available.
	case have == o.wanted && o.tolerated == 0 && o.spent+leaving == 0:
		return ""
	case o.spent+leaving > 0:
		return reason.BudgetSpent
	}
	return reason.NoBudget
}

// deniesShareEviction is Denies for an eviction because of a share. It also protects the last ready
// pod of an owner: the loss of its clients would exceed the gain of other pods.
func (b *Budget) deniesShareEviction(p *Pod) reason.Reason {
	if b.lastReady(p) {
		return cmp.Or(b.Denies(p), reason.NoBudget)
	}
	return b.Denies(p)
}

func (b *Budget) lastReady(p *Pod) bool {
	o := b.ownerOf(p)
	return o != nil && p.Ready && o.ready-o.spentReady-len(o.restarting) <= 1
}

// addRestarting records a ready pod that is about to be restarted because of an earlier plan.
func (b *Budget) addRestarting(p *Pod, one RestartHolder) {
	if o := b.ownerOf(p); o != nil && p.Ready {
		o.restarting = append(o.restarting, one)
	}
}

func (b *Budget) evictsCrowded(p *Pod) bool {
	o := b.ownerOf(p)
	return o != nil && o.evictsCrowded
}

// Spend records a disruption of the pod.
func (b *Budget) Spend(p *Pod) {
	o := b.ownerOf(p)
	if o == nil || p.Pending {
		return
	}
	o.spent++
	if p.Ready {
		o.spentReady++
	}
}

// Assessment rates whether and how urgently a pod needs a change.
type Assessment struct {
	Distance
	QuickOOM bool          // a container ran out of memory soon after its start
	Reason   reason.Reason // why the pod needs no change; empty if it needs one
}

// Cause returns the cause for an action on the assessed pod.
func (a Assessment) Cause() Cause {
	switch {
	case a.QuickOOM:
		return OutOfMemory
	case a.OutOfBounds:
		return OutOfBounds
	}
	return Changed
}

func (a Assessment) moreUrgent(b Assessment) int {
	switch {
	case a.Grows && !b.Grows:
		return -1
	case b.Grows && !a.Grows:
		return 1
	}
	return cmp.Compare(b.Change, a.Change)
}

// Assess reports whether a change is needed, or why not. Containers that the webhook did not observe
// do not count.
func Assess(v *VPA, p *Pod, c Config, now time.Time) Assessment {
	a := Assessment{Distance: p.Distance()}
	a.QuickOOM = p.QuickOOM(cmp.Or(v.QuickOOMTime, c.QuickOOMTime), now)
	a.Reason = a.needlessReason(p, c, now)
	if a.Reason == "" && (!v.Mode.Resizes() || p.WouldRestart() && (!p.IsOOMResize() || !p.recentlyOOMKilled(now))) {
		a.Reason = v.protection(p, !v.Mode.Resizes())
	}
	return a
}

func (a Assessment) needlessReason(p *Pod, c Config, now time.Time) reason.Reason {
	switch {
	case p.Boosted && !p.CPURefused():
		return reason.Boosted
	case p.Boosted && !p.WantsOOMResize(): // a new pod would be boosted again and not release the boost either
		return reason.StaticCPU
	case !slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Recommended() }):
		return reason.NoRecommendation
	case p.PodLevel:
		return reason.PodLevelResources
	case !p.NeedsChange():
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

// ViolatesLimitRange reports whether a LimitRange would refuse the target.
func (p *Pod) ViolatesLimitRange() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return slices.ContainsFunc(c.Target.Notes, policy.Note.Refused) })
}

// Admits reports whether a container of the pod meets all requirements.
func (v *VPA) Admits(p *Pod) bool {
	return len(v.Requirements) == 0 || slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Recommended() && !slices.ContainsFunc(v.Requirements, func(r Requirement) bool { return !c.meets(r) })
	})
}

// meets reports whether the container would change as r requires. A missing request counts as 0.
func (c *Container) meets(r Requirement) bool {
	met := false
	for k := range resources.Kind(resources.Kinds) {
		request := c.Actual.Requests.Value(k)
		target, ok := c.Target.Bounds.Target.Get(k)
		met = met || ok && r.Kinds[k] && (r.Higher && target > request || !r.Higher && target < request)
	}
	return met
}

// Distance is the difference between the actual resources of a pod and its target.
type Distance struct {
	OutOfBounds bool    // a request is missing or outside the recommended bounds
	Grows       bool    // a request is missing or below its target
	Change      float64 // relative change of the pod's totals, added over the kinds
}

// Distance ignores containers that the webhook did not observe. Totals cover the whole pod, so
// opposite changes of two containers cancel out, as in the reference VPA. If a memory limit is
// independent of the request, a limit outside its span is also out of bounds, and the larger of
// both relative changes counts.
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
			a.OutOfBounds = a.OutOfBounds || has < span.Min || has > span.Max
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

// Relative returns the change from a to b relative to a. Both are in thousandths of their unit, and
// a is at least one of these, as in the reference VPA. A pod without requests therefore has a very
// large change.
func Relative(k resources.Kind, a, b resources.Amount) float64 {
	if k == resources.Memory {
		a, _ = a.Proportion(1000, 1)
		b, _ = b.Proportion(1000, 1)
	}
	a = max(a, 1)
	return float64(max(a-b, b-a)) / float64(a)
}
