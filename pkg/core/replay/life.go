package replay

import (
	"math"

	"loadline.dev/loadline/pkg/core/resources"
)

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
