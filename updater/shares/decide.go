package shares

import (
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/updater/nodeshare"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

// facts are the input of decide.
type facts struct {
	state    SharingState
	kinds    [resources.Kinds]bool // kinds that the pod shares, or shared according to its mark
	ends     [resources.Kinds]bool // kinds that it stops sharing
	mark     sharing.Mark          // zero: none
	harmed   bool                  // its share did harm that is not marked yet
	killed   bool                  // it ran out of memory a moment ago, or has not been ready since
	restarts int                   // restart count of all containers
	now      time.Time
}

// decision is the next change of the share of a pod.
type decision struct {
	cause disruption.Cause      // empty: the pod keeps its requests
	peak  [resources.Kinds]bool // kinds that grow to the peak and never shrink; all others get the share
	mark  sharing.Mark          // written before the resize, without kinds at their peak
	early bool                  // write the mark even if the resize does not fit
}

// decide applies the first matching row of this table. All other kinds get their share.
//
//	state            event                           gets its peak   cause          mark
//	Ending           -                               all             ShareEnded     removed at the peak
//	Active, Pending  new harm                        all             ShareReverted  reverted, early
//	Active, Pending  harm in the last 24 hours       all             ShareReverted  -
//	Active, Pending  killed                          memory          ShareReverted  -
//	Pending          -                               nothing moves
//	Active           a kind is no longer shared      that kind       Shared         without the kind at its peak
//	Active           -                               -               Shared         the time, if the pod shrinks
func (f *facts) decide() decision {
	d := decision{cause: disruption.Shared, peak: f.ends, mark: f.mark}
	d.mark.Kinds = f.kinds
	switch {
	case f.state == Ending:
		d.cause, d.mark = disruption.ShareEnded, f.mark
	case f.harmed:
		d.cause, d.peak, d.early = disruption.ShareReverted, f.kinds, true
		d.mark = f.marked(d.mark, true)
	case f.mark.RevertActive(f.now):
		d.cause, d.peak = disruption.ShareReverted, f.kinds
	case f.killed:
		d.cause, d.peak[resources.Memory] = disruption.ShareReverted, true
	case f.state == Pending:
		return decision{}
	}
	return d
}

func (f *facts) marked(m sharing.Mark, reverted bool) sharing.Mark {
	m.At, m.Restarts, m.Reverted = f.now.UTC().Truncate(time.Second), f.restarts, reverted
	return m
}

// SharingState is the state of pods under a policy with sharing enabled now or earlier.
type SharingState uint8

// The states.
const (
	Pending SharingState = iota // undecided: pods keep their requests, only harm or a kill gives them their peak
	Ending                      // pods with a mark get their peak
	Active                      // pods get their shares
)

// SharingStates are the states of policies in mode On, by spec.sharing.nodeAutoscaler. The zero
// value is Pending.
type SharingStates struct{ Default, WithNodeAutoscaler SharingState }

func workloadState(v *nodeshare.VPA, may SharingStates) SharingState {
	switch {
	case v.Mode == fleet.SharingOn && v.Settings.AcceptsNodeAutoscaler:
		return may.WithNodeAutoscaler
	case v.Mode == fleet.SharingOn:
		return may.Default
	case v.ModeReason == reason.PolicyPaused, v.ModeReason == reason.PolicyUnknown, v.ModeReason == reason.ModeTooConservative && v.Decision.Mode == fleet.Canary:
		return Pending // the canary will reach all pods
	}
	return Ending
}

// state returns the state as of the last round, or Pending if the policy has changed since.
func (d *division) state(p *member, e *policies.Effective) SharingState {
	switch {
	case d.Nodes == nil || !d.NodeInformer.HasSynced(): // unknown whether changes fit
		return Pending
	case !d.sharingEnabled:
		return Ending
	case d.last.Load() == nil || p == nil: // no successful last round, or a new pod
		return Pending
	case p.workload == nil && e.Shares, p.workload != nil && !policyUnchanged(&p.workload.VPA, e):
		return Pending // until the next round
	case p.workload == nil:
		return Ending
	case p.workload.state != Active:
		return p.workload.state
	case sharing.EndsSharing(p.Excluded):
		return Ending
	case p.ExclusionReason() != "" || !p.node.sharesInEffect(p) || p.shares == nil && !p.leaves:
		return Pending
	}
	return Active
}

func policyUnchanged(v *nodeshare.VPA, e *policies.Effective) bool {
	d := &e.Decision
	return e.Shares && d.Policy.Name == v.Decision.Policy.Name && d.Policy.Sharing == v.Settings && d.Mode == v.Decision.Mode && d.SharingOptedOut == v.Decision.SharingOptedOut && d.Reason == v.Decision.Reason
}

type killedContainer struct {
	pod  types.UID
	name string
}

// killed reports whether a pod gets its memory peak: it ran out of memory within sharing.OOMPause
// or was not ready since. evict reports whether it may be evicted if its node refuses.
func (d *division) killed(v *disruption.VPA, a *shareTarget, p *disruption.Pod) (memory, evict bool) {
	for i := range a.containers {
		c := &a.containers[i]
		if c.OOM.Ended.IsZero() || p.Ready && d.now.Sub(c.OOM.Ended) >= sharing.OOMPause {
			continue
		}
		kill, of := d.kill(v, a, p, c), killedContainer{types.UID(p.UID), c.Actual.Name}
		kill.Recorded = d.kills[of]
		answer := sharing.RespondToOOM(kill)
		if answer.Recorded {
			d.record(of, kill.At)
		}
		if answer.Reason == reason.OOMCooling { // the reaction to the previous kill continues, in place
			kill.At = kill.Recorded
			answer = sharing.RespondToOOM(kill)
			answer.MayEvict = false
		}
		memory, evict = memory || answer.Reason == "", evict || answer.MayEvict
	}
	return memory, evict
}

func (d *division) kill(v *disruption.VPA, a *shareTarget, p *disruption.Pod, c *disruption.Container) sharing.OOMKill {
	object, err := d.Pods.Pods(p.Namespace).Get(p.Name)
	kill := sharing.OOMKill{
		At: c.OOM.Ended, Shared: a.kinds[resources.Memory], Gone: err != nil || string(object.UID) != p.UID || object.DeletionTimestamp != nil,
		Recommended: !v.Outdated && a.vpa.Recommendation[c.Actual.Name].Target.Has(resources.Memory),
	}
	if s := a.shared; s != nil {
		kill.Excluded, kill.Off, kill.Rank = s.Excluded == reason.Excluded, s.Excluded == reason.SharingOff, s.Sharing.Rank
		kill.Evict = a.state != Ending && s.workload != nil && policyUnchanged(&s.workload.VPA, a.policy) && s.workload.Settings.Evict && s.node.sharesInEffect(s)
	}
	return kill
}

// record stores a kill until the pod is deleted or the process ends.
func (d *division) record(of killedContainer, at time.Time) {
	if d.kills == nil {
		d.kills = map[killedContainer]time.Time{}
	}
	d.kills[of] = at
}

func (s *Sharing) forgetKills(view *snapshot.View) {
	if len(s.kills) == 0 {
		return
	}
	present := map[types.UID]bool{}
	for _, states := range view.States {
		for _, state := range states {
			present[types.UID(state.UID)] = true
		}
	}
	maps.DeleteFunc(s.kills, func(of killedContainer, _ time.Time) bool { return !present[of.pod] })
}

type sharePart struct {
	fitted         []policy.ContainerTarget
	shrinks, grows [resources.Kinds]bool
}

func (p *sharePart) moves() bool {
	return p.shrinks != [resources.Kinds]bool{} || p.grows != [resources.Kinds]bool{}
}

func (p *sharePart) growsAny(kinds [resources.Kinds]bool) bool {
	for k, grows := range p.grows {
		if grows && kinds[k] {
			return true
		}
	}
	return false
}

func (p *sharePart) restrictTo(kinds [resources.Kinds]bool) *sharePart {
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

func (p *sharePart) growthOnly(whole []disruption.Container) *sharePart {
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

func exclude(kinds, excluded [resources.Kinds]bool) [resources.Kinds]bool {
	for k := range kinds {
		kinds[k] = kinds[k] && !excluded[k]
	}
	return kinds
}

func (a *shareTarget) sharePart() *sharePart {
	part := &sharePart{fitted: a.fit()}
	for i := range part.fitted {
		f, asked := &part.fitted[i], &a.containers[i].Spec
		for k := range resources.Kind(resources.Kinds) {
			if !a.kinds[k] {
				*f = without(*f, k)
				continue
			}
			if a.peak[k] {
				f.Requests, f.Limits = atLeastCurrent(k, f.Requests, asked.Requests), atLeastCurrent(k, f.Limits, asked.Limits)
			}
			if a.keepsRequest(k, f, asked) {
				*f = without(*f, k)
			}
		}
		if !a.containers[i].Observed {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if wanted, some := f.Requests.Get(k); some {
				has := float64(asked.Requests.Value(k))
				less, more := worthMoving(int(k), has, float64(wanted))
				more = more || a.peak[k] && float64(wanted) > has*(1+nodeshare.MinMove) || // minMove does not apply to peaks
					a.peak[k] && !a.ends[k] && f.Limits.Value(k) > asked.Limits.Value(k) // the old limit may have caused the harm
				part.shrinks[k], part.grows[k] = part.shrinks[k] || less, part.grows[k] || more
			}
		}
		part.grows[resources.Memory] = part.grows[resources.Memory] || f.MemoryLimit != (policy.LimitSpan{}) && asked.Limits.Value(resources.Memory) < f.MemoryLimit.Min
	}
	return part
}

// keepsRequest is true at a peak, and for growth on an overcommitted node.
func (a *shareTarget) keepsRequest(k resources.Kind, f *policy.ContainerTarget, asked *policy.Container) bool {
	wanted, some := f.Requests.Get(k)
	if !some {
		return false
	}
	has := asked.Requests.Value(k)
	if a.peak[k] {
		limit, limited := f.Limits.Get(k)
		return wanted <= has && (!limited || limit <= asked.Limits.Value(k))
	}
	return a.state == Active && wanted > has && a.shared.node.results[0].Overcommitted[k]
}

func atLeastCurrent(k resources.Kind, of, has resources.List) resources.List {
	if a, some := of.Get(k); some {
		return of.With(k, max(a, has.Value(k)))
	}
	return of
}

// fit returns the container targets with shares or peaks in place of the recommendation.
func (a *shareTarget) fit() []policy.ContainerTarget {
	whole := a.containers
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
			case b.Target.Has(k) && !a.peak[k] && a.state == Active && i < len(a.shared.shares):
				b.Target = b.Target.With(k, amountOf(a.shared.shares[i][k]))
			}
		}
		given[whole[i].Actual.Name] = b
	}
	rules := a.vpa.Rules
	rules.Sharing = &policy.Sharing{Kinds: a.kinds} // Fit sizes these kinds by the table at the top of policy/shared.go
	if a.state == Active {
		if !a.shared.workload.KeepsCPULimit {
			rules.Sharing.CPULimit = a.shared.workload.Settings.CPULimit
		}
		rules.Sharing.NodeCPU = a.shared.node.Allocatable.Value(resources.CPU)
		rules.Sharing.Daemon = a.shared.Sharing.Daemon
	}
	return policy.Fit(pod, given, rules, a.vpa.Ranges.Ranges).Containers
}

// amountOf rounds down to millicores or bytes, so that shares fit despite rounding errors.
func amountOf(share float64) resources.Amount { return resources.Amount(math.Floor(share + 1e-6)) }

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
