package rollout

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Harm is the kind of damage that a change did. Empty means no detected harm.
type Harm string

// Kinds of harm, in the order of detection. The first one counts.
const (
	OOMKill  Harm = "OOMKilled" // a container with lowered memory
	Restart  Harm = "Restarts"  // a container with lowered resources
	Throttle Harm = "Throttled" // a container with a lowered CPU limit
	Pressure Harm = "Pressure"  // a container with a lowered CPU request waits for CPU
	NotReady Harm = "NotReady"  // the pod

	// Harm of Failed changes.
	InfeasibleResize Harm = "Infeasible" // the node can never fit the resize
	UnfinishedResize Harm = "Unfinished" // the resize took longer than an hour
)

// TriggersRevert reports whether changes are reverted for this kind of harm.
func (h Harm) Reverts() bool {
	switch h {
	case OOMKill, Restart, Throttle, Pressure, NotReady:
		return true
	}
	return false
}

// Safety defines which evidence counts as harm.
type Safety struct {
	Revert   bool          // if false, harmful changes are not reverted and end as Failed
	Period   time.Duration // observation period of a changed pod
	Restarts int           // minimum restarts of a container since its change
	// Throttle and Pressure are thresholds of five-minute shares, 0 to 1. 0 disables the check.
	Throttle, Pressure float64
}

// Default safety settings of a policy.
const (
	DefaultPeriod   = 5 * time.Minute
	DefaultRestarts = 2
	DefaultThrottle = 0.5
	DefaultPressure = 0.3
)

const (
	// shareWindow is the time window of throttling and pressure shares. It must lie after the
	// change.
	shareWindow = 5 * time.Minute
	// evidenceGrace is how long evidence counts after the end of an observation.
	tolerated = 10 * time.Minute
	// pressureFactor is the minimum increase of pressure over the value before the change.
	worse = 2
	// resizeTimeout is the maximum duration of a resize.
	finished = time.Hour
)

// ObservationPeriod returns own, or else other, or else DefaultPeriod. 0 is an absent field.
func ObservationPeriod(own, other time.Duration) time.Duration {
	return cmp.Or(own, other, DefaultPeriod)
}

// Evidence is the observed state of a changed pod.
type Evidence struct {
	Containers []Witness
	Infeasible bool // the node can never fit the resize
	Resizing   bool // the resize is in progress or retried by the node
	Replaced   bool // the pod template of the workload has changed
	Gone       bool // the pod is deleted or terminating

	Generation int64

	NotReady      bool // condition Ready is present and not True
	NotReadySince time.Time
	NodeReady     bool // the node is present and ready
	// Measured reports that throttling and pressure were queried after the change. A value that is
	// still missing is NaN.
	Measured bool
}

// ContainerEvidence is the observed state of one container of a changed pod.
type Witness struct {
	policy.Container           // requests and limits of the spec
	OOMKilled        time.Time // end of the last run if it was OOM-killed, else zero
	Restarts         int
	// Shares over five minutes, now and before the change. NaN is unknown.
	Throttled, ThrottledBefore float64
	Waiting, WaitingBefore     float64 // CPU pressure
}

// Verdict is the current result of a change.
type Verdict struct {
	Outcome Outcome // empty while the observation continues
	Harm    Harm    // cause of Reverted and Failed
	Ask     bool    // throttling and pressure are required now, but not measured

	Early Harm // harm that counts at any time: OOMKill and Restart
	Full  Harm // harm that counts at the end of the period
	// SharesPending reports that the change is younger than the window of throttling and pressure.
	Later bool
}

// Judge returns the current result of a change. Recorded harm is final, because its evidence may be
// gone. A change that was never applied is Superseded, and one that lowered nothing is a Success.
// During a resize only OOMKill and Restart count, because it may be partly applied. Missing
// evidence is no harm.
func Judge(c Change, e Evidence, s Safety, now time.Time) (v Verdict) {
	age := now.Sub(c.At)
	v.Early = c.early(e, s)
	v.Full, v.Later = c.full(e, s, age, v.Early)
	ends, why := c.Observed(s), v.Early
	if age >= s.Period {
		why = v.Full
	}
	why = cmp.Or(c.Harm, why)
	never := c.Generation != 0 && e.Generation == c.Generation // the process ended before it applied the change
	switch ours := e.holds(c.Containers, false); {
	case e.Gone, e.Replaced, never:
		v.Outcome = Superseded
	case !ours && why != "" && e.holds(c.Containers, true):
		v.Outcome, v.Harm = Reverted, why // the revert was applied, then the process ended
	case !ours:
		v.Outcome = Superseded
	case c.Harm != "":
		v.harmed(why, s)
	case e.Infeasible:
		v.Outcome, v.Harm = Failed, InfeasibleResize
	case c.Pending:
	case e.Resizing && v.Early == "":
		if age >= finished {
			v.Outcome, v.Harm = Failed, UnfinishedResize
		}
	case !c.lowers():
		v.Outcome = Success
	case age > ends+tolerated && !e.Resizing, age < -skew:
		v.Outcome = Unobserved
	case why != "":
		v.harmed(why, s)
	case age < ends:
	case !e.Measured && c.least(s) > 0:
		v.Ask = true
	default:
		v.Outcome = Success
	}
	return v
}

func (v *Verdict) harmed(why Harm, s Safety) {
	v.Outcome, v.Harm = Reverted, why
	if !s.Revert {
		v.Outcome = Failed
	}
}

// ObservationTime returns the duration of the observation.
func (c *Change) Observed(s Safety) time.Duration { return max(s.Period, c.least(s)) }

// minObservation returns how long throttling and pressure take to measure, or 0 if the change needs
// neither.
func (c *Change) least(s Safety) time.Duration {
	if slices.ContainsFunc(c.Containers, func(one Sizing) bool { return one.throttles(s) || one.waits(s) }) {
		return shareWindow
	}
	return 0
}

func (c *Sizing) throttles(s Safety) bool { return s.Throttle > 0 && c.lowersLimit(resources.CPU) }

func (c *Sizing) waits(s Safety) bool { return s.Pressure > 0 && c.lowersRequest(resources.CPU) }

func (c *Change) any(e Evidence, holds func(*Sizing, *Witness) bool) bool {
	for i := range c.Containers {
		for j := range e.Containers {
			if e.Containers[j].Name == c.Containers[i].From.Name && holds(&c.Containers[i], &e.Containers[j]) {
				return true
			}
		}
	}
	return false
}

// earlyHarm returns harm that counts before the end of the period.
func (c *Change) early(e Evidence, s Safety) Harm {
	switch {
	case c.any(e, func(one *Sizing, w *Witness) bool { return one.lowers(resources.Memory) && w.OOMKilled.After(c.At) }):
		return OOMKill
	case c.any(e, func(one *Sizing, w *Witness) bool {
		return one.lowersAny() && w.Restarts >= one.Restarts+max(s.Restarts, 1)
	}):
		return Restart
	}
	return ""
}

// finalHarm returns harm that counts at the end of the period. Comparisons with NaN are false, so
// missing shares are no harm.
func (c *Change) full(e Evidence, s Safety, age time.Duration, early Harm) (why Harm, later bool) {
	measured := age >= shareWindow
	switch {
	case early != "":
		return early, false
	case measured && c.any(e, func(one *Sizing, w *Witness) bool {
		return one.throttles(s) && w.Throttled > s.Throttle && w.ThrottledBefore <= s.Throttle
	}):
		return Throttle, false
	case measured && c.any(e, func(one *Sizing, w *Witness) bool {
		return one.waits(s) && w.Waiting > s.Pressure && w.Waiting >= worse*w.WaitingBefore
	}):
		return Pressure, false
	case c.lowers() && c.Ready && e.NotReady && e.NodeReady && !e.NotReadySince.After(c.At.Add(s.Period)):
		return NotReady, false
	}
	return "", !measured && c.least(s) > 0
}

// holds reports whether the pod still has the resources of the change. With allowReverted, each
// amount may also be the reverted one.
func (e *Evidence) holds(changed []Sizing, back bool) bool {
	for i := range e.Containers {
		has := &e.Containers[i].Container
		at := slices.IndexFunc(changed, func(s Sizing) bool { return s.From.Name == has.Name })
		if at < 0 {
			continue
		}
		to, from := changed[at].To, changed[at].From
		for k := range resources.Kind(resources.Kinds) {
			if other(k, to.Requests, has.Requests) && (!back || other(k, larger(k, to.Requests, from.Requests), has.Requests)) ||
				other(k, to.Limits, has.Limits) && (!back || other(k, larger(k, to.Limits, from.Limits), has.Limits)) {
				return false
			}
		}
	}
	return true
}

func other(k resources.Kind, wrote, has resources.List) bool {
	a, ok := wrote.Get(k)
	return ok && (!has.Has(k) || has.Value(k) != a)
}

// Change is stored on a pod before a resize, so that any process can judge and revert it.
type Change struct {
	// At is when the resize was sent. If the node applies the resize later, At is that time, and
	// the observation starts then.
	At      time.Time
	Pending bool // deferred: the node has not started the resize
	Ready   bool // the pod was ready before the change
	// Generation is metadata.generation of the pod before the change, or 0 if unknown. The change
	// is not applied as long as the pod still has it.
	Generation int64
	// Harm is recorded before the revert, so that another process can complete the revert after a
	// crash. Empty means no detected harm.
	Harm       Harm
	Containers []Sizing
}

// ContainerChange is the change of one container.
type Sizing struct {
	From     policy.Container // resources before the change, with the container name
	To       policy.Container // written resources, absent kinds are unchanged
	Restarts int              // restart count before the change
}

func (c *Sizing) lowersRequest(k resources.Kind) bool {
	to, written := c.To.Requests.Get(k)
	from, had := c.From.Requests.Get(k)
	return written && had && to < from
}

// lowersLimit reports whether the limit of a kind was lowered or added.
func (c *Sizing) lowersLimit(k resources.Kind) bool {
	to, written := c.To.Limits.Get(k)
	from, had := c.From.Limits.Get(k)
	return written && (!had || to < from)
}

func (c *Sizing) lowers(k resources.Kind) bool { return c.lowersRequest(k) || c.lowersLimit(k) }

func (c *Sizing) lowersAny() bool { return c.lowers(resources.CPU) || c.lowers(resources.Memory) }

// lowers reports whether the change lowers any resource. Only lowered resources can do harm.
func (c *Change) lowers() bool {
	return slices.ContainsFunc(c.Containers, func(s Sizing) bool { return s.lowersAny() })
}

// Renewed returns the change to store when a pod under observation changes again, for example to
// get more memory after an OOM kill. A revert still restores the resources before c. Call Judge
// first, so that c is blamed for a kill.
func (c Change) Renewed(next Change) Change {
	next.Ready = next.Ready || c.Ready
	next.Containers = slices.Clone(next.Containers)
	for _, old := range c.Containers {
		i := slices.IndexFunc(next.Containers, func(s Sizing) bool { return s.From.Name == old.From.Name })
		if i < 0 {
			next.Containers = append(next.Containers, old)
			continue
		}
		s := &next.Containers[i]
		for k := range resources.Kind(resources.Kinds) {
			if old.To.Requests.Has(k) || old.To.Limits.Has(k) {
				s.From.Requests, s.From.Limits = copied(k, s.From.Requests, old.From.Requests), copied(k, s.From.Limits, old.From.Limits)
			}
			if !s.To.Requests.Has(k) {
				s.To.Requests = copied(k, s.To.Requests, old.To.Requests)
			}
			if !s.To.Limits.Has(k) {
				s.To.Limits = copied(k, s.To.Limits, old.To.Limits)
			}
		}
	}
	slices.SortStableFunc(next.Containers, func(a, b Sizing) int { return cmp.Compare(a.From.Name, b.From.Name) })
	return next
}

// withCopied returns into with the amount of a kind in from, or without the kind if from has none.
func copied(k resources.Kind, into, from resources.List) resources.List {
	if a, ok := from.Get(k); ok {
		return into.With(k, a)
	}
	return into.Without(k)
}

// RunningContainer is a container of the current pod spec. Containers without recommendations count
// for the QoS class.
type Running struct {
	policy.Container
	Restarts [resources.Kinds]bool // a resize of the kind restarts the container
}

// RevertTargets returns the resources that revert the change: the maximum of the previous and the
// current amounts, or nothing if none grows. A container is restarted only for OOMKill and Restart,
// because it was not working anyway.
//
// A limit that the change added cannot be removed from a running pod. If the revert would make the
// pod Guaranteed, one request stays one unit below its limit, because a resize must not change the
// QoS class.
func (c *Change) RevertSizes(now []Running, why Harm) (gets []policy.ContainerTarget) {
	after := make([]policy.Container, len(now))
	for i, has := range now {
		after[i] = has.Container
		at := slices.IndexFunc(c.Containers, func(s Sizing) bool { return s.From.Name == has.Name })
		if at < 0 {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if has.Restarts[k] && why != OOMKill && why != Restart {
				continue
			}
			from := c.Containers[at].From
			after[i].Requests, after[i].Limits = larger(k, after[i].Requests, from.Requests), larger(k, after[i].Limits, from.Limits)
		}
	}
	keepClass(now, after)
	for i, has := range now {
		f := policy.ContainerTarget{Name: has.Name}
		for k := range resources.Kind(resources.Kinds) {
			f.Requests, f.Limits = written(k, f.Requests, has.Requests, after[i].Requests), written(k, f.Limits, has.Limits, after[i].Limits)
		}
		if !f.Requests.Empty() || !f.Limits.Empty() {
			gets = append(gets, f)
		}
	}
	return gets
}

// Concerns reports whether the harm relates to a kind of resource. An OOM kill concerns memory,
// throttling and pressure concern CPU, and all other harm concerns both.
func (h Harm) About(k resources.Kind) bool {
	switch h {
	case OOMKill:
		return k == resources.Memory
	case Throttle, Pressure:
		return k == resources.CPU
	}
	return true
}

// FilterTargets returns the amounts of the kinds that the harm concerns.
func (h Harm) Needs(gets []policy.ContainerTarget) (needed []policy.ContainerTarget) {
	for _, f := range gets {
		for k := range resources.Kind(resources.Kinds) {
			if !h.About(k) {
				f.Requests, f.Limits = f.Requests.Without(k), f.Limits.Without(k)
			}
		}
		if !f.Requests.Empty() || !f.Limits.Empty() {
			needed = append(needed, f)
		}
	}
	return needed
}

// withLarger returns current with the previous amount of a kind, if that is larger. A missing
// amount stays missing, because a container without a limit is unlimited.
func larger(k resources.Kind, has, was resources.List) resources.List {
	if now, ok := has.Get(k); ok && was.Value(k) > now {
		return has.With(k, was.Value(k))
	}
	return has
}

// withChange returns into with the target amount of a kind, if it differs from the current one.
func written(k resources.Kind, into, has, gets resources.List) resources.List {
	if a, ok := gets.Get(k); ok && a != has.Value(k) {
		return into.With(k, a)
	}
	return into
}

// preserveClass lowers one restored request by one unit, if the restored requests would make the
// pod Guaranteed.
func keepClass(now []Running, after []policy.Container) {
	before := make([]policy.Container, len(now))
	for i, has := range now {
		before[i] = has.Container
	}
	if policy.ClassOf(before) == policy.Guaranteed || policy.ClassOf(after) != policy.Guaranteed {
		return
	}
	for i := range after {
		for k := range resources.Kind(resources.Kinds) {
			if a := after[i].Requests.Value(k); a > before[i].Requests.Value(k) {
				after[i].Requests = after[i].Requests.With(k, a-1)
				return
			}
		}
	}
}

// RollingOut reports whether a template rollout is in progress: fewer pods than desired are updated
// or available.
func RollingOut(wanted, updated, available int) bool { return updated < wanted || available < wanted }
