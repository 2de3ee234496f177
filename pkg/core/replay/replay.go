// Package replay runs a recommender against the recorded usage of a container.
//
// Run takes a Recording, a Setup and an Advisor. It samples, recommends, plans and resizes like the
// real programs, with the same planner, and reports samples, recommendations, changes and kills to
// an Observer. SimulatedRecommender is the recommender without a cluster. Fixed and MovingMax are
// baselines. A Timeline collects the data of a chart.
//
// Package backtest scores the results.
package replay

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
)

// Container is the name of the replayed container.
const Container = "app"

type replay struct {
	setup            Setup
	advisor          Advisor
	pressureObserver PressureObserver // the advisor, if waiting was recorded, else nil
	startObserver    StartObserver    // the advisor, if it implements StartObserver
	waiting          float64          // share of time in the current sample, NaN = unknown
	observer         Observer
	pod              pod

	start   int64         // start of the recording and time of the first tick
	backlog float64       // core seconds of delayed CPU work
	up      int64         // time from which the container runs again
	killed  int64         // time of the last OOM kill, 0 = never
	backoff time.Duration // backoff of the next kill
	planned int64         // time of the last plan
	lastUse [resources.Kinds]float64
	meters  [resources.Kinds]scrapeMeter
	life    startIndexes
}

// InitialRequests returns the requests at the start of a replay: from the setup, else the recorded
// requests, else the recorded limits, else the guess. They are at least one millicore and one byte.
func InitialRequests(r *Recording, s Setup) resources.List {
	var first resources.List
	for k := range resources.Kind(resources.Kinds) {
		a, known := s.Initial.Get(k)
		if !known {
			a, known = r.Requests.Get(k)
		}
		if !known {
			a, known = r.Limits.Get(k)
		}
		if !known {
			a = resources.FromFloat(math.Ceil(s.Guess * firstHourPeak(r, k)))
		}
		first = first.With(k, max(a, 1))
	}
	return first
}

func firstHourPeak(r *Recording, k resources.Kind) float64 {
	most := 0.0
	for i, use := range r.Use[k] {
		if r.At[i]-r.At[0] >= int64(time.Hour) {
			break
		}
		if use > most {
			most = use
		}
	}
	return most
}

// Run replays a recording. The setup must be valid.
func Run(r *Recording, s Setup, a Advisor, w Observer) {
	if len(r.At) == 0 {
		return
	}
	var holds [resources.Kinds][]int64
	for k := range resources.Kind(resources.Kinds) {
		holds[k] = r.SampleDurations(k)
	}
	p := &replay{start: r.At[0], setup: s, advisor: a, observer: w, backoff: s.Backoff, planned: math.MinInt64, pod: newPod(r, s)}
	if protector, ok := a.(LimitSeparator); ok {
		p.pod.rules.SeparateMemoryLimit = protector.SeparateMemoryLimit()
	}
	if r.Waiting != nil {
		p.pressureObserver, _ = a.(PressureObserver)
	}
	p.startObserver, _ = a.(StartObserver)
	if s.Startup {
		p.started(r.At[0])
	}
	for i, at := range r.At {
		longest := int64(0)
		if p.pressureObserver != nil {
			p.waiting = r.Waiting[i]
		}
		if i > 0 && s.NewPod > 0 && at-r.At[i-1] >= int64(s.NewPod) {
			p.startPod(at, i)
		}
		use := [resources.Kinds]float64{resources.CPU: r.Use[resources.CPU][i], resources.Memory: p.memory(r, i)}
		p.memoryKill(at, use[resources.Memory], holds[resources.Memory][i])
		for k := range resources.Kind(resources.Kinds) {
			if holds[k][i] > 0 {
				p.sample(at, k, use[k], holds[k][i])
				longest = max(longest, holds[k][i])
			}
		}
		p.plan(at + longest)
	}
}

// memoryKill kills the container if it runs during a sample above its memory limit. A raise takes
// effect before it runs again.
func (p *replay) memoryKill(at int64, use float64, hold int64) {
	limit := p.pod.limit(resources.Memory)
	dies := max(at, p.up)
	if !p.setup.Sized[resources.Memory] || hold == 0 || limit == 0 || !(use > float64(limit)) || dies >= at+hold {
		return
	}
	if p.killed != 0 && dies-p.up >= int64(p.setup.BackoffReset) {
		p.backoff = p.setup.Backoff
	}
	p.pod.recordKill(p.up, dies)
	p.killed, p.up = dies, dies+int64(p.setup.Restart+p.backoff)
	p.backoff = min(max(2*p.backoff, p.setup.Backoff), p.setup.MaxBackoff)
	p.life.killed = true
	p.started(p.up)
	p.observer.Killed(Kill{dies, use, limit})
	p.advisor.Killed(time.Unix(0, dies).UTC(), p.pod.request(resources.Memory), limit)
	if p.setup.Update.AfterKill {
		p.raise(dies)
	}
}

func (p *replay) sample(at int64, k resources.Kind, use float64, hold int64) {
	limit := p.pod.limit(k)
	s := Sample{
		At: at, Duration: hold, Down: min(max(p.up-at, 0), hold), Kind: k, Use: use, Seen: use,
		Request: p.pod.request(k), Limit: limit,
	}
	if k == resources.CPU {
		s.Seen, s.Backlog = p.limitCPU(use, hold-s.Down, limit)
	}
	if limit > 0 {
		s.Seen = min(s.Seen, float64(limit))
	}
	// A node reports nothing for a sample in which the container was killed.
	if s.Down == hold || p.killed >= at {
		s.Seen = math.NaN()
	}
	p.lastUse[k] = s.Seen
	p.observer.Sample(s)
	if p.setup.Scrape > 0 {
		p.measure(s)
		return
	}
	p.observeAtTicks(s)
}

// limitCPU returns the CPU usage under a limit, and the delayed work in core seconds.
func (p *replay) limitCPU(use float64, up int64, limit resources.Amount) (served, backlog float64) {
	if limit == 0 {
		return use, 0
	}
	if !p.setup.CarryBacklog || up == 0 {
		return min(use, float64(limit)), p.backlog
	}
	seconds := float64(up) / 1e9
	wanted := use + p.backlog*1000/seconds
	served = min(wanted, float64(limit))
	p.backlog = (wanted - served) / 1000 * seconds
	return served, p.backlog
}

func (p *replay) observeAtTicks(s Sample) {
	if math.IsNaN(s.Seen) {
		return
	}
	tick := int64(p.setup.Tick)
	first := p.start + (s.At+s.Down-p.start+tick-1)/tick*tick
	for at := first; at < s.At+s.Duration; at += tick {
		p.observe(at, s.Kind, s.Seen, s.Limit)
	}
}

func (p *replay) observe(at int64, k resources.Kind, use float64, limit resources.Amount) {
	seen := resources.FromFloat(math.Ceil(use)) // rounded like in the metrics API
	p.advisor.Observe(time.Unix(0, at).UTC(), k, seen, limit)
	if p.pressureObserver != nil && k == resources.CPU && !math.IsNaN(p.waiting) {
		p.pressureObserver.ObservePressure(time.Unix(0, at).UTC(), seen, p.waiting)
	}
}

func (p *replay) plan(now int64) {
	if p.planned != math.MinInt64 && now-p.planned < int64(p.setup.Tick) {
		return
	}
	p.planned = now
	p.pod.fit(p.advise(now))
	at := time.Unix(0, now).UTC()
	if action, ok := p.pod.plan(at); ok {
		p.pod.state.Record(action, p.apply(now, action), at)
	}
}

func (p *replay) started(at int64) {
	if p.startObserver != nil {
		p.startObserver.Started(time.Unix(0, at).UTC())
	}
}

func (p *replay) advise(now int64) resources.Bounds {
	bounds := capBounds(p.advisor.Advise(time.Unix(0, now).UTC(), p.pod.container().Actual.Requests), &p.setup)
	p.observer.Advised(Advice{now, bounds})
	return bounds
}

func (p *replay) raise(now int64) {
	p.pod.fit(p.advise(now))
	if p.pod.targetRequest(resources.Memory) > p.pod.request(resources.Memory) || p.pod.targetMemoryLimit() > p.pod.limit(resources.Memory) {
		pod := p.pod.pod()
		a := disruption.Action{
			Subject: disruption.Subject{UID: pod.UID}, Cause: disruption.OutOfMemory, Evict: p.setup.Update.Mode == disruption.Recreate,
			Containers: pod.Targets(), Owner: Container, Change: pod.Change(), Newest: pod.Created,
		}
		p.pod.state.Record(a, p.apply(now, a), time.Unix(0, now).UTC())
	}
}

// apply refuses a change that would lower the memory limit below the current usage.
func (p *replay) apply(now int64, a disruption.Action) disruption.Outcome {
	if p.setup.Update.RefuseUnsafeCuts && !a.Evict && p.pod.cutsBelowUsage(p.lastUse[resources.Memory]) {
		return disruption.Prevented
	}
	if a.Evict {
		p.up = max(p.up, now+int64(p.setup.Restart))
		p.started(p.up)
	}
	for k := range resources.Kind(resources.Kinds) {
		from, to := p.pod.request(k), p.pod.targetRequest(k)
		if from != to || k == resources.Memory && p.pod.targetMemoryLimit() != p.pod.limit(k) {
			p.observer.Changed(Change{At: now, Kind: k, From: from, To: to, Evicted: a.Evict, Cause: a.Cause})
		}
	}
	p.pod.applyTarget(now, a.Evict)
	return disruption.Done
}
