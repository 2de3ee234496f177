package replay

import (
	"math"
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// pod is the pod as the updater plans for it. Resources without recommendation have no limit.
type pod struct {
	setup    *Setup
	template policy.Pod // as declared, limits keep the ratio of this template
	rules    policy.Rules
	fits     resources.Bounds // bounds of the last fit
	view     disruption.View
	state    disruption.State // result of the last plan
	pods     int              // number of earlier pods
	planned  bool             // there was a plan for it
}

// InitialContainer returns the container at the start of a replay. Later limits keep its ratio.
func InitialContainer(r *Recording, s Setup) policy.Container {
	c := policy.Container{Name: Container, Requests: InitialRequests(r, s)}
	for k := range resources.Kind(resources.Kinds) {
		if limit := initialLimit(r, s.Limits[k], k, c.Requests.Value(k)); limit > 0 && s.Sized[k] {
			c.Limits = c.Limits.With(k, limit)
		}
	}
	return c
}

func newPod(r *Recording, s Setup) pod {
	c := InitialContainer(r, s)
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

func initialLimit(r *Recording, l Limit, k resources.Kind, request resources.Amount) resources.Amount {
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

func (p *pod) targetRequest(k resources.Kind) resources.Amount {
	if a, ok := p.container().Target.Requests.Get(k); ok {
		return a
	}
	return p.request(k)
}

func (p *pod) targetMemoryLimit() resources.Amount {
	if a, ok := p.container().Target.Limits.Get(resources.Memory); ok {
		return a
	}
	return p.limit(resources.Memory)
}

func (p *pod) cutsBelowUsage(use float64) bool {
	limit, ok := p.container().Target.Limits.Get(resources.Memory)
	return ok && limit < p.limit(resources.Memory) && use > float64(limit)
}

func capBounds(b resources.Bounds, s *Setup) resources.Bounds {
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

// fit reuses the last fit for the same target, which differs only in its bounds, unless the limit
// depends on a bound. Bounds change with every sample, but targets rarely.
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

func (p *pod) plan(now time.Time) (disruption.Action, bool) {
	vpa, config := &p.view.VPAs[0], p.setup.Update.Planner
	if p.planned && (p.isUnchanged(now) || disruption.Assess(vpa, p.pod(), config, now).Reason != "") {
		return disruption.Action{}, false // same result as Plan, but faster
	}
	result := disruption.Plan(p.view, p.state, config, now)
	p.state, p.planned = result.State, true
	if len(result.Actions) == 0 {
		return disruption.Action{}, false
	}
	return result.Actions[0], true
}

// Above this share of the threshold isUnchanged does not decide: the planner may round otherwise.
const thresholdMargin = 0.99

// isUnchanged reports the most frequent result without the cost of a plan: the pod is within its
// bounds, was never OOM-killed, and is too young or has too small a change.
func (p *pod) isUnchanged(now time.Time) bool {
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
		if limit < span.Min || limit > span.Max {
			return false
		}
		change += math.Abs(float64(p.targetMemoryLimit()-limit)) / float64(max(limit, 1)) // at least the change that the planner computes
	}
	return change < thresholdMargin*config.Threshold || now.Before(p.pod().Started.Add(config.Lifetime))
}

// applyTarget restarts the age of the pod after an eviction, and with Update.FromChange always.
func (p *pod) applyTarget(now int64, evicted bool) {
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
		pod.Created, pod.UID, p.planned = at, Container+strconv.Itoa(p.pods), false
	}
}

func (p *pod) recordKill(up, at int64) {
	started := p.pod().Started
	if ran := time.Unix(0, up).UTC(); ran.After(started) {
		started = ran
	}
	p.container().OOM = disruption.OOM{Started: started, Ended: time.Unix(0, at).UTC()}
}

// NewPod is the cause of a change at pod creation.
const NewPod = "NewPod"

// startIndexes holds the sample indexes at which the pod and its container start.
type startIndexes struct {
	pod, container int
	killed         bool // the container has not restarted yet
}

// memory returns the memory usage of a sample. With MemoryFromStart, a restarted container repeats
// the usage of its pod from the first sample on.
func (p *replay) memory(r *Recording, i int) float64 {
	use, l := r.Use[resources.Memory], &p.life
	if !p.setup.MemoryFromStart {
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

func (p *replay) startPod(at int64, i int) {
	p.pod.fit(p.advise(at))
	for k := range resources.Kind(resources.Kinds) {
		if from, to := p.pod.request(k), p.pod.targetRequest(k); from != to {
			p.observer.Changed(Change{At: at, Kind: k, From: from, To: to, AtCreation: true, Cause: NewPod})
		}
	}
	p.pod.applyTarget(at, true)
	p.life = startIndexes{pod: i, container: i}
	p.up, p.killed, p.backoff, p.backlog = at, 0, p.setup.Backoff, 0
	p.lastUse = [resources.Kinds]float64{}
	p.meters = [resources.Kinds]scrapeMeter{}
	p.started(at)
}

// scrapeMeter accumulates usage since the last scrape of the metrics server.
//
//	scrapes   |         |         |         |
//	samples     [-- a --][-- b --][-- c --]
//	                    ^ CPU: (part of a + part of b) / time; memory: b
type scrapeMeter struct {
	next   int64   // time of the next scrape, 0 = no scrape yet
	amount float64 // CPU usage times nanoseconds
	ran    int64   // nanoseconds that the container ran
}

// measure adds a sample, and passes scraped usage to the advisor. Of several scrapes between two
// ticks only the last one counts.
func (p *replay) measure(s Sample) {
	m, every, tick := &p.meters[s.Kind], int64(p.setup.Scrape), int64(p.setup.Tick)
	if m.next <= s.At { // the first sample, or one after a gap
		*m = scrapeMeter{next: p.start + ((s.At-p.start)/every+1)*every}
	}
	end := s.At + s.Duration
	from := min(s.At+s.Down, end)
	if math.IsNaN(s.Seen) {
		*m, from = scrapeMeter{next: m.next}, end
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
		if queriedAt := p.start + (m.next-p.start+tick-1)/tick*tick; queriedAt < m.next+every && from < m.next && m.ran > 0 {
			p.observe(m.next, s.Kind, seen, s.Limit)
		}
		from = max(from, m.next)
		*m = scrapeMeter{next: m.next + every}
	}
}
