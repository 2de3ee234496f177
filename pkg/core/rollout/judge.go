package rollout

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Harm is what a change did, in one word; empty: nothing that is known.
type Harm string

// The harms, in the order in which they are looked for: the first one counts.
const (
	OOMKill  Harm = "OOMKilled" // of a container whose memory was lowered
	Restart  Harm = "Restarts"  // of a container that was lowered
	Throttle Harm = "Throttled" // of a container whose CPU limit was lowered
	Pressure Harm = "Pressure"  // of a container whose CPU request was lowered: it waits for CPU
	NotReady Harm = "NotReady"  // the pod

	// Of changes that Failed.
	InfeasibleResize Harm = "Infeasible" // the node can never do it
	UnfinishedResize Harm = "Unfinished" // the node was at it for an hour
)

// Reverts reports whether it is a harm for which changes are taken back.
func (h Harm) Reverts() bool {
	switch h {
	case OOMKill, Restart, Throttle, Pressure, NotReady:
		return true
	}
	return false
}

// Safety says when a change did harm.
type Safety struct {
	Revert   bool          // else a change that did harm is not taken back and ends as Failed
	Period   time.Duration // how long a changed pod is observed
	Restarts int           // so many of a container since its change
	// Throttle and Pressure are shares over five minutes, 0 to 1, that must be exceeded; 0: not looked at.
	Throttle, Pressure float64
}

// The defaults of a policy.
const (
	DefaultPeriod   = 5 * time.Minute
	DefaultRestarts = 2
	DefaultThrottle = 0.5
	DefaultPressure = 0.3
)

const (
	// shareWindow is the time over which the shares are taken. It must lie after the change.
	shareWindow = 5 * time.Minute
	// tolerated is how long after the end of an observation evidence is still used.
	tolerated = 10 * time.Minute
	// worse is how many times as high as before the pressure must be.
	worse = 2
	// finished is how long a node may be at a resize.
	finished = time.Hour
)

// ObservationPeriod returns how long something is observed: as its own field says, else as
// the other one, else DefaultPeriod. 0 is a field that is absent.
func ObservationPeriod(own, other time.Duration) time.Duration {
	return cmp.Or(own, other, DefaultPeriod)
}

// Evidence is what is known of a changed pod.
type Evidence struct {
	Containers []Witness
	Infeasible bool // its node can never do the resize
	Resizing   bool // its node is at the resize, or tries it again
	Replaced   bool // its workload has another template by now
	Gone       bool // it is gone or going

	Generation int64 // of its spec

	NotReady      bool // its condition Ready is there and not True
	NotReadySince time.Time
	NodeReady     bool // its node is there and ready
	// Measured says that the shares of its containers were asked for after the change; one
	// that is still missing then is NaN.
	Measured bool
}

// Witness is what is known of one container of a changed pod.
type Witness struct {
	policy.Container           // what its spec asks for
	OOMKilled        time.Time // the end of its last run, or of that now, if it was out of memory; else zero
	Restarts         int       // how often it was restarted
	// The shares over five minutes now, and before the change; NaN: not known.
	Throttled, ThrottledBefore float64
	Waiting, WaitingBefore     float64 // for CPU
}

// Verdict is what came of a change so far.
type Verdict struct {
	Outcome Outcome // empty: the observation goes on
	Harm    Harm    // why, of Reverted and Failed
	Ask     bool    // the shares are needed now, and are not measured yet

	Early Harm // what counts at any time: OOMKill and Restart
	Full  Harm // what counts at the end of the period
	// Later says that throttling is not known yet: the change is younger than the time over which it is taken.
	Later bool
}

// Judge says what came of a change. Harm that was noted stays: the evidence may be gone since. A
// change that was never carried out did nothing, and one that lowered nothing is a Success. While
// the node is at it, a part may be done: only OOMKill and Restart count. Missing evidence is no harm.
func Judge(c Change, e Evidence, s Safety, now time.Time) (v Verdict) {
	age := now.Sub(c.At)
	v.Early = c.early(e, s)
	v.Full, v.Later = c.full(e, s, age, v.Early)
	ends, why := c.Observed(s), v.Early
	if age >= s.Period {
		why = v.Full
	}
	why = cmp.Or(c.Harm, why)
	never := c.Generation != 0 && e.Generation == c.Generation // the process ended before it was made
	switch ours := e.holds(c.Containers, false); {
	case e.Gone, e.Replaced, never:
		v.Outcome = Superseded
	case !ours && why != "" && e.holds(c.Containers, true):
		v.Outcome, v.Harm = Reverted, why // it was given back, and the process ended
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

// Observed is how long the change is observed.
func (c *Change) Observed(s Safety) time.Duration { return max(s.Period, c.least(s)) }

// least is how long the change must be observed at least: until what is measured over some
// time is known. 0: nothing is.
func (c *Change) least(s Safety) time.Duration {
	if slices.ContainsFunc(c.Containers, func(one Sizing) bool { return one.throttles(s) || one.waits(s) }) {
		return shareWindow
	}
	return 0
}

func (c *Sizing) throttles(s Safety) bool { return s.Throttle > 0 && c.lowersLimit(resources.CPU) }

func (c *Sizing) waits(s Safety) bool { return s.Pressure > 0 && c.lowersRequest(resources.CPU) }

// any reports whether something holds for a container of the change and what is known of it.
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

// early returns the harm that needs no period.
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

// full returns the harm that counts at the end of the period. NaN exceeds nothing.
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

// holds reports whether the pod asks for what the change wrote, or, with back, for that or what it would
// be given back of each amount.
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

// other reports whether an amount of a kind was written and is another one now.
func other(k resources.Kind, wrote, has resources.List) bool {
	a, ok := wrote.Get(k)
	return ok && (!has.Has(k) || has.Value(k) != a)
}

// Change is what is noted on a pod before it is resized, so that any process can judge the change and take it back.
type Change struct {
	// At is when the resize was sent. When the node has acted later, it is that time: the observation begins then.
	At      time.Time
	Pending bool // deferred: the node has not begun
	Ready   bool // the pod was ready before
	// Generation of the pod's spec before the change; 0: not known. As long as the pod has it, the change was not made.
	Generation int64
	// Harm is what the change did; it is noted before the change is taken back, so that a process
	// that ends amid that does not leave it half done. Empty: it did none that is known.
	Harm       Harm
	Containers []Sizing
}

// Sizing is the change of one container.
type Sizing struct {
	From     policy.Container // what its spec asked for, with its name
	To       policy.Container // what was written; a kind that is absent stays
	Restarts int              // how often it had been restarted
}

// lowersRequest reports whether the request of a kind was lowered.
func (c *Sizing) lowersRequest(k resources.Kind) bool {
	to, written := c.To.Requests.Get(k)
	from, had := c.From.Requests.Get(k)
	return written && had && to < from
}

// lowersLimit reports whether the limit of a kind was lowered, or is new.
func (c *Sizing) lowersLimit(k resources.Kind) bool {
	to, written := c.To.Limits.Get(k)
	from, had := c.From.Limits.Get(k)
	return written && (!had || to < from)
}

func (c *Sizing) lowers(k resources.Kind) bool { return c.lowersRequest(k) || c.lowersLimit(k) }

func (c *Sizing) lowersAny() bool { return c.lowers(resources.CPU) || c.lowers(resources.Memory) }

// lowers reports whether the change can do harm: only what was lowered can.
func (c *Change) lowers() bool {
	return slices.ContainsFunc(c.Containers, func(s Sizing) bool { return s.lowersAny() })
}

// Renewed returns what is to be noted when a pod whose change c goes on to be observed is
// changed once more, as by memory after an out-of-memory kill: the sizes before c stay those
// that would be given back. Judge goes first, so that the kill counts if c led to it.
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

// copied returns into with the amount that from has of a kind, or with none.
func copied(k resources.Kind, into, from resources.List) resources.List {
	if a, ok := from.Get(k); ok {
		return into.With(k, a)
	}
	return into.Without(k)
}

// Running is one container of a pod as its spec is now. Containers that are never sized count for the class of the pod.
type Running struct {
	policy.Container
	Restarts [resources.Kinds]bool // changing this kind restarts it
}

// RevertSizes returns what the containers of a pod get when the change is taken back: each resource the maximum of what
// it was and what it is now, so that nothing is lowered. It is empty if there is nothing to give. A container is
// restarted only for OOMKill and Restart: it was not working anyway.
//
// A limit that the change brought cannot be removed from a running pod. Where all would make the pod Guaranteed, which
// a running pod cannot become, one request stays one unit below its limit.
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

// About reports whether a harm is about a kind of resource: an OOM kill about memory, throttling and
// pressure about CPU, all others about both.
func (h Harm) About(k resources.Kind) bool {
	switch h {
	case OOMKill:
		return k == resources.Memory
	case Throttle, Pressure:
		return k == resources.CPU
	}
	return true
}

// Needs returns the amounts of the kinds that a harm is about.
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

// larger returns has with the amount of a kind that was, if that is larger. What has no
// amount now stays so: without a limit it has more than any.
func larger(k resources.Kind, has, was resources.List) resources.List {
	if now, ok := has.Get(k); ok && was.Value(k) > now {
		return has.With(k, was.Value(k))
	}
	return has
}

// written returns into with the amount of a kind if it differs from what is there.
func written(k resources.Kind, into, has, gets resources.List) resources.List {
	if a, ok := gets.Get(k); ok && a != has.Value(k) {
		return into.With(k, a)
	}
	return into
}

// keepClass takes one unit back from a request that was given back, if the pod would be Guaranteed by that and is not.
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

// RollingOut reports whether a workload is being rolled out: fewer of its pods than wanted
// have the newest template, or are available.
func RollingOut(wanted, updated, available int) bool { return updated < wanted || available < wanted }
