package main

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// frames is how many stretches of time a drawing shows.
const frames = 240

// Frame is what happened to all pods in a stretch of time.
type Frame struct {
	Highest float64 // use of any pod
	request float64 // times nanoseconds
	used    float64 // times nanoseconds
	held    float64 // nanoseconds of all pods
}

// Request returns the mean request of a pod, and false if there was no pod.
func (f *Frame) Request() (float64, bool) { return f.request / f.held, f.held > 0 }

// Outcome is what happened under a candidate. It is the witness of all pods. Totals are
// those since the scenario is settled.
type Outcome struct {
	scenario *Scenario
	Frames   [frames]Frame
	Kills    []int64 // nanoseconds since 1970, the ones before included

	reserved, used, starved float64 // amount times nanoseconds
	held                    float64 // nanoseconds of all pods
	lowest, highest         float64 // request
	changes                 int
}

func newOutcome(s *Scenario) *Outcome { return &Outcome{scenario: s, lowest: math.Inf(1)} }

// counts reports whether an instant is in what counts.
func (o *Outcome) counts(at int64) bool { return at >= begin.Add(o.scenario.Settle).UnixNano() }

func (o *Outcome) frame(at int64) *Frame {
	i := int(float64(at-begin.UnixNano()) / float64(o.scenario.Length) * frames)
	return &o.Frames[min(max(i, 0), frames-1)]
}

// Sample implements replay.Witness.
func (o *Outcome) Sample(s replay.Sample) {
	if s.Kind != o.scenario.Kind {
		return
	}
	hold, request, f := float64(s.Hold), float64(s.Request), o.frame(s.At)
	f.held, f.request = f.held+hold, f.request+request*hold
	use := s.Use
	if math.IsNaN(s.Seen) {
		use = 0 // it is down
	}
	f.Highest, f.used = max(f.Highest, use), f.used+use*hold
	if !o.counts(s.At) {
		return
	}
	o.held, o.reserved, o.used, o.starved = o.held+hold, o.reserved+request*hold, o.used+use*hold, o.starved+max(0, use-request)*hold
	o.lowest, o.highest = min(o.lowest, request), max(o.highest, request)
}

// Advised implements replay.Witness.
func (o *Outcome) Advised(replay.Advice) {}

// Changed implements replay.Witness.
func (o *Outcome) Changed(c replay.Change) {
	if c.Kind == o.scenario.Kind && o.counts(c.At) {
		o.changes++
	}
}

// Killed implements replay.Witness.
func (o *Outcome) Killed(k replay.Kill) { o.Kills = append(o.Kills, k.At) }

// Mean returns the mean request of a pod.
func (o *Outcome) Mean() float64 { return o.reserved / o.held }

// Reserved returns what is requested as a multiple of what the expert would.
func (o *Outcome) Reserved() float64 { return o.Mean() / float64(o.scenario.Expert) }

// Starved returns the share of the CPU work that was above the request.
func (o *Outcome) Starved() float64 { return o.starved / o.used }

// Killed returns how many containers were killed for want of memory.
func (o *Outcome) kills() (sum int) {
	for _, at := range o.Kills {
		if o.counts(at) {
			sum++
		}
	}
	return sum
}

// Changes returns how often the request of a pod was changed in place, a day.
func (o *Outcome) Changes() float64 { return float64(o.changes) / (o.held / float64(day)) }

// After returns the lowest and the highest mean request of a pod from a time since the
// begin up to another.
func (o *Outcome) After(from, to time.Duration) (lowest, highest float64) {
	lowest = math.Inf(1)
	for i := range o.Frames {
		at := time.Duration(float64(i) / frames * float64(o.scenario.Length))
		if request, known := o.Frames[i].Request(); known && at >= from && at < to {
			lowest, highest = min(lowest, request), max(highest, request)
		}
	}
	return lowest, highest
}

// candidates are who is compared, in the order of tables.
func candidates(s *Scenario) []named {
	return []named{
		{"expert", expert{replay.Fixed{Size: resources.List{}.With(s.Kind, s.Expert)}}},
		{"vpa", newRecommender("vpa", s.Kind)},
		{"loadline", newRecommender("loadline", s.Kind)},
	}
}

type named struct {
	name string
	candidate
}
