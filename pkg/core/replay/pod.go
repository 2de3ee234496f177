package replay

import (
	"math"
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// pod is the replayed pod, in the form in which the updater plans for it. Kinds that are not sized have no limit.
type pod struct {
	setup    *Setup
	template policy.Pod // as declared: limits keep their ratio to requests from here
	rules    policy.Rules
	fits     resources.Bounds // what was fitted last
	view     disruption.View
	state    disruption.State // what the last plan left
	pods     int              // how many there were before this one
	seen     bool             // by a plan
}

// Declared returns the container that a replay begins with. Its limits keep their ratio to its requests.
func Declared(r *Recording, s Setup) policy.Container {
	c := policy.Container{Name: Container, Requests: First(r, s)}
	for k := range resources.Kind(resources.Kinds) {
		if limit := firstLimit(r, s.Limits[k], k, c.Requests.Value(k)); limit > 0 && s.Sized[k] {
			c.Limits = c.Limits.With(k, limit)
		}
	}
	return c
}

func newPod(r *Recording, s Setup) pod {
	c := Declared(r, s)
	start := time.Unix(0, r.At[0]).UTC()
	return pod{
		setup:    &s,
		template: policy.Pod{Containers: []policy.Container{c}},
		view: disruption.View{VPAs: []disruption.VPA{{
			Namespace: Container, Name: Container, Mode: s.Update.Mode, MinReplicas: 1,
			Groups: []disruption.Group{{Replicas: 1, Key: Container}},
			Pods: []disruption.Pod{{
				Namespace: Container, Name: Container, UID: Container, Ready: true, Created: start, Started: start,
				Containers: []disruption.Container{{Observed: true, Actual: c, Spec: c}},
			}},
		}}},
	}
}

func firstLimit(r *Recording, l Limit, k resources.Kind, request resources.Amount) resources.Amount {
	switch l.Policy {
	case NoLimit:
		return 0
	case Proportional:
		return resources.FromFloat(float64(request) * l.Factor)
	}
	recorded, hasLimit := r.Limits.Get(k)
	if declared, ok := r.Requests.Get(k); ok && hasLimit && declared > 0 {
		limit, _ := recorded.Proportion(request, declared)
		return max(limit, request)
	}
	return request
}

func (p *pod) pod() *disruption.Pod             { return &p.view.VPAs[0].Pods[0] }
func (p *pod) container() *disruption.Container { return &p.pod().Containers[0] }

func (p *pod) request(k resources.Kind) resources.Amount {
	return p.container().Actual.Requests.Value(k)
}

func (p *pod) limit(k resources.Kind) resources.Amount { return p.container().Actual.Limits.Value(k) }

// wanted returns the request that the last fit asks for.
func (p *pod) wanted(k resources.Kind) resources.Amount {
	if a, ok := p.container().Target.Requests.Get(k); ok {
		return a
	}
	return p.request(k)
}

// wantedLimit returns the memory limit that the last fit asks for.
func (p *pod) wantedLimit() resources.Amount {
	if a, ok := p.container().Target.Limits.Get(resources.Memory); ok {
		return a
	}
	return p.limit(resources.Memory)
}

// starves reports whether the last fit would put the memory limit under a use.
func (p *pod) starves(use float64) bool {
	limit, ok := p.container().Target.Limits.Get(resources.Memory)
	return ok && limit < p.limit(resources.Memory) && use > float64(limit)
}

// sized leaves of a recommendation what is sized, capped by the rule.
func sized(b resources.Bounds, s *Setup) resources.Bounds {
	for k := range resources.Kind(resources.Kinds) {
		if !s.Sized[k] {
			b.Lower, b.Target, b.Upper = b.Lower.Without(k), b.Target.Without(k), b.Upper.Without(k)
		}
	}
	if s.Rule.Min.Empty() && s.Rule.Max.Empty() {
		return b
	}
	return policy.Cap(b, s.Rule)
}

// fit asks what the pod would get from a recommendation. Bounds move with every sample, targets seldom: as there are no
// ranges and no rules here, a fit for the same target differs only in its bounds. Where a limit does not follow its
// request, it depends on a bound.
func (p *pod) fit(b resources.Bounds) {
	c := p.container()
	if separate := p.rules.SeparateMemoryLimit; c.Target.Name == "" || c.Target.Bounds.Target != b.Target || separate && p.fits != b {
		c.Target, p.fits = p.fitted(b), b
	}
	if !p.rules.SeparateMemoryLimit {
		c.Target.Bounds = b
	}
}

func (p *pod) fitted(b resources.Bounds) policy.ContainerTarget {
	return policy.Fit(p.template, map[string]resources.Bounds{Container: b}, p.rules, policy.Ranges{}).Containers[0]
}

// plan returns what the updater would do with the pod, if anything.
func (p *pod) plan(now time.Time) (disruption.Action, bool) {
	vpa, config := &p.view.VPAs[0], p.setup.Update.Planner
	if p.seen && (p.waits(now) || disruption.Assess(vpa, p.pod(), config, now).Reason != "") {
		return disruption.Action{}, false // as Plan would find, but without a plan
	}
	result := disruption.Plan(p.view, p.state, config, now)
	p.state, p.seen = result.State, true
	if len(result.Actions) == 0 {
		return disruption.Action{}, false
	}
	return result.Actions[0], true
}

// surely is how far below the threshold a change is for which the planner need not be
// asked: closer to it the two may round differently.
const surely = 0.99

// waits reports whether the planner would leave the pod alone, because it is within its
// bounds, was never killed, and is too young for a change or would hardly change.
// That is the answer nearly always, and asking the planner takes longer.
func (p *pod) waits(now time.Time) bool {
	c, config := p.container(), &p.setup.Update.Planner
	if !c.OOM.Ended.IsZero() {
		return false
	}
	b, change := &c.Target.Bounds, 0.0
	for k := range resources.Kind(resources.Kinds) {
		target, sized := b.Target.Get(k)
		if !sized {
			continue
		}
		request, has := c.Actual.Requests.Get(k)
		lower, hasLower := b.Lower.Get(k)
		upper, hasUpper := b.Upper.Get(k)
		if !has || hasLower && request < lower || hasUpper && request > upper {
			return false
		}
		change += math.Abs(float64(target-request)) / float64(max(request, 1))
	}
	if span := c.Target.MemoryLimit; span != (policy.LimitSpan{}) {
		limit := p.limit(resources.Memory)
		if limit < span.Least || limit > span.Most {
			return false
		}
		change += math.Abs(float64(p.wantedLimit()-limit)) / float64(max(limit, 1)) // at least as much as the planner counts
	}
	return change < surely*config.Threshold || now.Before(p.pod().Started.Add(config.Lifetime))
}

// adopt makes what was fitted the sizes of the pod. A new pod, and one whose age
// counts from its last change, is young again.
func (p *pod) adopt(now int64, evicted bool) {
	c := p.container()
	c.Actual.Requests, c.Actual.Limits = c.Actual.Requests.Override(c.Target.Requests), c.Actual.Limits.Override(c.Target.Limits)
	c.Spec = c.Actual
	pod, at := p.pod(), time.Unix(0, now).UTC()
	if evicted || p.setup.Update.FromChange {
		pod.Started = at
	}
	if evicted {
		c.OOM = disruption.OOM{}
		p.pods++
		pod.Created, pod.UID, p.seen = at, Container+strconv.Itoa(p.pods), false
	}
}

// die records a kill for want of memory of a container that ran since up.
func (p *pod) die(up, at int64) {
	started := p.pod().Started
	if ran := time.Unix(0, up).UTC(); ran.After(started) {
		started = ran
	}
	p.container().OOM = disruption.OOM{Started: started, Ended: time.Unix(0, at).UTC()}
}

// NewPod is the cause of a change that a new pod brings.
const NewPod = "NewPod"

// life says where in the recording the pod and its container begin.
type life struct {
	pod, container int  // numbers of samples
	killed         bool // the container has not begun again yet
}

// memory returns the use of memory in a step. A container that begins afresh uses what
// the pod did from its first sample on.
func (p *replay) memory(r *Recording, i int) float64 {
	use, l := r.Use[resources.Memory], &p.life
	if !p.setup.Afresh {
		return use[i]
	}
	if l.killed && r.At[i] >= p.up {
		l.container, l.killed = i, false
	}
	since := i - l.container
	if l.killed {
		since = 0
	}
	if again := use[l.pod+since]; !math.IsNaN(again) {
		return again
	}
	return use[i]
}

// renew starts a new pod, which has what is recommended at its start.
func (p *replay) renew(at int64, i int) {
	p.pod.fit(p.advise(at))
	for k := range resources.Kind(resources.Kinds) {
		if from, to := p.pod.request(k), p.pod.wanted(k); from != to {
			p.witness.Changed(Change{At: at, Kind: k, From: from, To: to, Anew: true, Cause: NewPod})
		}
	}
	p.pod.adopt(at, true)
	p.life = life{pod: i, container: i}
	p.up, p.killed, p.backoff, p.backlog = at, 0, p.setup.Backoff, 0
	p.lastUse = [resources.Kinds]float64{}
	p.meters = [resources.Kinds]meter{}
	p.started(at)
}

// meter is what a metrics server has measured of a kind since it looked last.
//
//	scrapes   |         |         |         |
//	samples     [-- a --][-- b --][-- c --]
//	                    ^ CPU: (part of a + part of b) / time; memory: b
type meter struct {
	next   int64   // when it looks again; 0 = it has not yet
	amount float64 // use of CPU, times nanoseconds
	ran    int64   // nanoseconds that the container ran
}

// measure adds a sample, and shows the advisor what is seen of it. Of what a metrics
// server saw between two ticks only the last is asked for.
func (p *replay) measure(s Sample) {
	m, every, tick := &p.meters[s.Kind], int64(p.setup.Scrape), int64(p.setup.Tick)
	if m.next <= s.At { // the first sample, or one after a gap
		*m = meter{next: p.start + ((s.At-p.start)/every+1)*every}
	}
	end := s.At + s.Hold
	from := min(s.At+s.Down, end)
	if math.IsNaN(s.Seen) {
		*m, from = meter{next: m.next}, end
	}
	for {
		upTo := min(m.next, end)
		if part := upTo - from; part > 0 {
			m.amount, m.ran = m.amount+s.Seen*float64(part), m.ran+part
		}
		if m.next > end {
			return
		}
		seen := s.Seen
		if s.Kind == resources.CPU {
			seen = m.amount / float64(m.ran)
		}
		if asked := p.start + (m.next-p.start+tick-1)/tick*tick; asked < m.next+every && from < m.next && m.ran > 0 {
			p.observe(m.next, s.Kind, seen, s.Limit)
		}
		from = max(from, m.next)
		*m = meter{next: m.next + every}
	}
}
