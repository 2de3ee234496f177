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
func (h Harm) TriggersRevert() bool {
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
	// shareWindow is the time window of throttling and pressure shares, all of it after the change.
	shareWindow = 5 * time.Minute
	// evidenceGrace is how long evidence counts after the end of an observation.
	evidenceGrace = 10 * time.Minute
	// pressureFactor is the minimum increase of pressure over the value before the change.
	pressureFactor = 2
	// resizeTimeout is the maximum duration of a resize.
	resizeTimeout = time.Hour
)

// ObservationPeriod returns own, or else other, or else DefaultPeriod. 0 is an absent field.
func ObservationPeriod(own, other time.Duration) time.Duration {
	return cmp.Or(own, other, DefaultPeriod)
}

// Evidence is the observed state of a changed pod.
type Evidence struct {
	Containers []ContainerEvidence
	Infeasible bool // the node can never fit the resize
	Resizing   bool // the resize is in progress or retried by the node
	Replaced   bool // the pod template of the workload has changed
	Gone       bool // the pod is deleted or terminating

	Generation int64

	NotReady      bool // condition Ready is present and not True
	NotReadySince time.Time
	NodeReady     bool // the node is present and ready
	// Measured means that shares were queried after the change. A value still missing is NaN.
	Measured bool
}

// ContainerEvidence is the observed state of one container of a changed pod.
type ContainerEvidence struct {
	policy.Container           // requests and limits of the spec
	OOMKilled        time.Time // end of the last run if it was OOM-killed, else zero
	Restarts         int
	// Shares over five minutes, now and before the change. NaN is unknown.
	Throttled, ThrottledBefore float64
	Pressure, PressureBefore   float64 // CPU pressure
}

// Verdict is the current result of a change.
type Verdict struct {
	Outcome      Outcome // empty while the observation continues; Reverted: the change must be reverted
	Harm         Harm    // cause of Reverted and Failed
	NeedsMetrics bool    // throttling and pressure are required now, but not measured

	EarlyHarm Harm // harm that counts at any time: OOMKill and Restart
	FinalHarm Harm // harm that counts at the end of the period
	// SharesPending reports that the change is younger than the window of throttling and pressure.
	SharesPending bool
}

// Judge returns the current result of a change. Noted harm is final, because its evidence may be
// gone. A change that was never applied is Superseded, and one that lowered nothing is a Success.
// During a resize only OOMKill and Restart count, because it may be partly applied. Missing
// evidence is no harm.
func Judge(c Change, e Evidence, s Safety, now time.Time) (v Verdict) {
	age := now.Sub(c.At)
	v.EarlyHarm = c.earlyHarm(e, s)
	v.FinalHarm, v.SharesPending = c.finalHarm(e, s, age, v.EarlyHarm)
	duration, why := c.ObservationTime(s), v.EarlyHarm
	if age >= s.Period {
		why = v.FinalHarm
	}
	why = cmp.Or(c.Harm, why)
	notApplied := c.Generation != 0 && e.Generation == c.Generation // the process ended before it applied the change
	if e.Gone || e.Replaced || notApplied {
		v.Outcome = Superseded
		return v
	}
	if !e.shows(c.Containers, false) {
		v.Outcome = Superseded
		if why != "" && e.shows(c.Containers, true) {
			v.Outcome, v.Harm = Reverted, why // the revert was applied, then the process ended
		}
		return v
	}
	v.judgeApplied(c, e, s, why, age, duration)
	return v
}

// judgeApplied sets the outcome of a change that the spec of its pod still has. why is the harm that
// counts now, or empty.
func (v *Verdict) judgeApplied(c Change, e Evidence, s Safety, why Harm, age, duration time.Duration) {
	switch {
	case c.Harm != "":
		v.setHarm(why, s)
	case e.Infeasible:
		v.Outcome, v.Harm = Failed, InfeasibleResize
	case c.Pending:
	case e.Resizing && v.EarlyHarm == "":
		if age >= resizeTimeout {
			v.Outcome, v.Harm = Failed, UnfinishedResize
		}
	case !c.lowers():
		v.Outcome = Success
	case age > duration+evidenceGrace && !e.Resizing, age < -skew:
		v.Outcome = Unobserved
	case why != "":
		v.setHarm(why, s)
	case age < duration:
	case !e.Measured && c.minObservation(s) > 0:
		v.NeedsMetrics = true
	default:
		v.Outcome = Success
	}
}

func (v *Verdict) setHarm(why Harm, s Safety) {
	v.Outcome, v.Harm = Reverted, why
	if !s.Revert {
		v.Outcome = Failed
	}
}

// ObservationTime returns the duration of the observation.
func (c *Change) ObservationTime(s Safety) time.Duration { return max(s.Period, c.minObservation(s)) }

// minObservation returns how long throttling and pressure take to measure, or 0 if not needed.
func (c *Change) minObservation(s Safety) time.Duration {
	if slices.ContainsFunc(c.Containers, func(one ContainerChange) bool { return one.checksThrottling(s) || one.checksPressure(s) }) {
		return shareWindow
	}
	return 0
}

func (c *ContainerChange) checksThrottling(s Safety) bool {
	return s.Throttle > 0 && c.lowersLimit(resources.CPU)
}

func (c *ContainerChange) checksPressure(s Safety) bool {
	return s.Pressure > 0 && c.lowersRequest(resources.CPU)
}

func (c *Change) anyContainer(e Evidence, holds func(*ContainerChange, *ContainerEvidence) bool) bool {
	for i := range c.Containers {
		for j := range e.Containers {
			if e.Containers[j].Name == c.Containers[i].From.Name && holds(&c.Containers[i], &e.Containers[j]) {
				return true
			}
		}
	}
	return false
}

func (c *Change) earlyHarm(e Evidence, s Safety) Harm {
	switch {
	case c.anyContainer(e, func(one *ContainerChange, w *ContainerEvidence) bool {
		return one.lowers(resources.Memory) && w.OOMKilled.After(c.At)
	}):
		return OOMKill
	case c.anyContainer(e, func(one *ContainerChange, w *ContainerEvidence) bool {
		return one.lowersAny() && w.Restarts >= one.Restarts+max(s.Restarts, 1)
	}):
		return Restart
	}
	return ""
}

// finalHarm compares with NaN as false, so missing shares are no harm.
func (c *Change) finalHarm(e Evidence, s Safety, age time.Duration, early Harm) (why Harm, later bool) {
	measured := age >= shareWindow
	switch {
	case early != "":
		return early, false
	case measured && c.anyContainer(e, func(one *ContainerChange, w *ContainerEvidence) bool {
		return one.checksThrottling(s) && w.Throttled > s.Throttle && w.ThrottledBefore <= s.Throttle
	}):
		return Throttle, false
	case measured && c.anyContainer(e, func(one *ContainerChange, w *ContainerEvidence) bool {
		return one.checksPressure(s) && w.Pressure > s.Pressure && w.Pressure >= pressureFactor*w.PressureBefore
	}):
		return Pressure, false
	case c.lowers() && c.Ready && e.NotReady && e.NodeReady && !e.NotReadySince.After(c.At.Add(s.Period)):
		return NotReady, false
	}
	return "", !measured && c.minObservation(s) > 0
}

// shows reports whether the pod has the amounts that the change wrote or, with allowReverted, the
// amounts of its revert.
func (e *Evidence) shows(changed []ContainerChange, allowReverted bool) bool {
	for i := range e.Containers {
		has := &e.Containers[i].Container
		at := slices.IndexFunc(changed, func(s ContainerChange) bool { return s.From.Name == has.Name })
		if at < 0 {
			continue
		}
		to, from := changed[at].To, changed[at].From
		for k := range resources.Kind(resources.Kinds) {
			if overwritten(k, to.Requests, has.Requests) && (!allowReverted || overwritten(k, withLarger(k, to.Requests, from.Requests), has.Requests)) ||
				overwritten(k, to.Limits, has.Limits) && (!allowReverted || overwritten(k, withLarger(k, to.Limits, from.Limits), has.Limits)) {
				return false
			}
		}
	}
	return true
}

func overwritten(k resources.Kind, wrote, has resources.List) bool {
	a, ok := wrote.Get(k)
	return ok && (!has.Has(k) || has.Value(k) != a)
}

// Change is stored on a pod before a resize, so that any process can judge and revert it.
type Change struct {
	// At is when the resize was sent, or later when the node began it. The observation starts then.
	At      time.Time
	Pending bool // deferred: the node has not started the resize
	Ready   bool // the pod was ready before the change
	// Generation is metadata.generation of the pod before the change, or 0 if unknown. The change
	// is not applied as long as the pod still has it.
	Generation int64
	// Harm is recorded before the revert, so that any process can complete it. Empty: none
	// detected.
	Harm       Harm
	Containers []ContainerChange
}

// ContainerChange is the change of one container.
type ContainerChange struct {
	From     policy.Container // resources before the change, with the container name
	To       policy.Container // written resources, absent kinds are unchanged
	Restarts int              // restart count before the change
}

func (c *ContainerChange) lowersRequest(k resources.Kind) bool {
	to, written := c.To.Requests.Get(k)
	from, had := c.From.Requests.Get(k)
	return written && had && to < from
}

func (c *ContainerChange) lowersLimit(k resources.Kind) bool {
	to, written := c.To.Limits.Get(k)
	from, had := c.From.Limits.Get(k)
	return written && (!had || to < from)
}

func (c *ContainerChange) lowers(k resources.Kind) bool {
	return c.lowersRequest(k) || c.lowersLimit(k)
}

func (c *ContainerChange) lowersAny() bool {
	return c.lowers(resources.CPU) || c.lowers(resources.Memory)
}

// lowers reports whether the change lowers any resource. Only lowered resources can do harm.
func (c *Change) lowers() bool {
	return slices.ContainsFunc(c.Containers, func(s ContainerChange) bool { return s.lowersAny() })
}

// Renewed returns the change to store when a pod under observation changes again, for example to
// get more memory after an OOM kill. A revert still restores the resources before c. Call Judge
// first, so that c is blamed for a kill.
func (c Change) Renewed(next Change) Change {
	next.Ready = next.Ready || c.Ready
	next.Containers = slices.Clone(next.Containers)
	for _, old := range c.Containers {
		i := slices.IndexFunc(next.Containers, func(s ContainerChange) bool { return s.From.Name == old.From.Name })
		if i < 0 {
			next.Containers = append(next.Containers, old)
			continue
		}
		s := &next.Containers[i]
		for k := range resources.Kind(resources.Kinds) {
			if old.To.Requests.Has(k) || old.To.Limits.Has(k) {
				s.From.Requests, s.From.Limits = withCopied(k, s.From.Requests, old.From.Requests), withCopied(k, s.From.Limits, old.From.Limits)
			}
			if !s.To.Requests.Has(k) {
				s.To.Requests = withCopied(k, s.To.Requests, old.To.Requests)
			}
			if !s.To.Limits.Has(k) {
				s.To.Limits = withCopied(k, s.To.Limits, old.To.Limits)
			}
		}
	}
	slices.SortStableFunc(next.Containers, func(a, b ContainerChange) int { return cmp.Compare(a.From.Name, b.From.Name) })
	return next
}

func withCopied(k resources.Kind, into, from resources.List) resources.List {
	if a, ok := from.Get(k); ok {
		return into.With(k, a)
	}
	return into.Without(k)
}

// RunningContainer is a container of the pod spec. All of them count for the QoS class.
type RunningContainer struct {
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
func (c *Change) RevertTargets(now []RunningContainer, why Harm) (targets []policy.ContainerTarget) {
	after := make([]policy.Container, len(now))
	for i, container := range now {
		after[i] = container.Container
		at := slices.IndexFunc(c.Containers, func(s ContainerChange) bool { return s.From.Name == container.Name })
		if at < 0 {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if container.Restarts[k] && why != OOMKill && why != Restart {
				continue
			}
			from := c.Containers[at].From
			after[i].Requests, after[i].Limits = withLarger(k, after[i].Requests, from.Requests), withLarger(k, after[i].Limits, from.Limits)
		}
	}
	preserveClass(now, after)
	for i, container := range now {
		f := policy.ContainerTarget{Name: container.Name}
		for k := range resources.Kind(resources.Kinds) {
			f.Requests, f.Limits = withChange(k, f.Requests, container.Requests, after[i].Requests), withChange(k, f.Limits, container.Limits, after[i].Limits)
		}
		if !f.Requests.Empty() || !f.Limits.Empty() {
			targets = append(targets, f)
		}
	}
	return targets
}

// Concerns reports whether the harm relates to a kind of resource.
func (h Harm) Concerns(k resources.Kind) bool {
	switch h {
	case OOMKill:
		return k == resources.Memory
	case Throttle, Pressure:
		return k == resources.CPU
	}
	return true
}

// FilterTargets returns the amounts of the kinds that the harm concerns.
func (h Harm) FilterTargets(targets []policy.ContainerTarget) (needed []policy.ContainerTarget) {
	for _, f := range targets {
		for k := range resources.Kind(resources.Kinds) {
			if !h.Concerns(k) {
				f.Requests, f.Limits = f.Requests.Without(k), f.Limits.Without(k)
			}
		}
		if !f.Requests.Empty() || !f.Limits.Empty() {
			needed = append(needed, f)
		}
	}
	return needed
}

// withLarger keeps a missing amount missing, because a container without a limit is unlimited.
func withLarger(k resources.Kind, current, previous resources.List) resources.List {
	if now, ok := current.Get(k); ok && previous.Value(k) > now {
		return current.With(k, previous.Value(k))
	}
	return current
}

func withChange(k resources.Kind, into, current, target resources.List) resources.List {
	if a, ok := target.Get(k); ok && a != current.Value(k) {
		return into.With(k, a)
	}
	return into
}

// preserveClass lowers one restored request by one unit if the pod would become Guaranteed.
func preserveClass(now []RunningContainer, after []policy.Container) {
	before := make([]policy.Container, len(now))
	for i, container := range now {
		before[i] = container.Container
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
