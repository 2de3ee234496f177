package main

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// frames is the number of time intervals in a drawing.
const frames = 240

// Frame sums the state of all pods in one time interval.
type Frame struct {
	Highest float64 // usage of any pod
	request float64 // amount times nanoseconds
	used    float64 // amount times nanoseconds
	podTime float64 // nanoseconds of all pods
}

// Request returns the mean request of a pod, and false without pods.
func (f *Frame) Request() (float64, bool) { return f.request / f.podTime, f.podTime > 0 }

// Outcome is the result of a scenario under a candidate. It observes the replays of all pods.
// Totals exclude the time before Scenario.Settle.
type Outcome struct {
	scenario *Scenario
	Frames   [frames]Frame
	Kills    []int64 // nanoseconds since 1970, including kills before Settle

	reserved, used, starved float64 // amount times nanoseconds
	podTime                 float64 // nanoseconds of all pods
	minRequest, maxRequest  float64
	changes                 int
}

func newOutcome(s *Scenario) *Outcome { return &Outcome{scenario: s, minRequest: math.Inf(1)} }

func (o *Outcome) isSettled(at int64) bool { return at >= begin.Add(o.scenario.Settle).UnixNano() }

func (o *Outcome) frame(at int64) *Frame {
	i := int(float64(at-begin.UnixNano()) / float64(o.scenario.Length) * frames)
	return &o.Frames[min(max(i, 0), frames-1)]
}

// Sample implements replay.Observer.
func (o *Outcome) Sample(s replay.Sample) {
	if s.Kind != o.scenario.Kind {
		return
	}
	hold, request, f := float64(s.Duration), float64(s.Request), o.frame(s.At)
	f.podTime, f.request = f.podTime+hold, f.request+request*hold
	use := s.Use
	if math.IsNaN(s.Seen) {
		use = 0 // container is down
	}
	f.Highest, f.used = max(f.Highest, use), f.used+use*hold
	if !o.isSettled(s.At) {
		return
	}
	o.podTime, o.reserved, o.used, o.starved = o.podTime+hold, o.reserved+request*hold, o.used+use*hold, o.starved+max(0, use-request)*hold
	o.minRequest, o.maxRequest = min(o.minRequest, request), max(o.maxRequest, request)
}

// Advised implements replay.Observer.
func (o *Outcome) Advised(replay.Advice) {}

// Changed implements replay.Observer.
func (o *Outcome) Changed(c replay.Change) {
	if c.Kind == o.scenario.Kind && o.isSettled(c.At) {
		o.changes++
	}
}

// Killed implements replay.Observer.
func (o *Outcome) Killed(k replay.Kill) { o.Kills = append(o.Kills, k.At) }

// Mean returns the mean request of a pod.
func (o *Outcome) Mean() float64 { return o.reserved / o.podTime }

// Reserved returns the mean request as a multiple of the expert's request.
func (o *Outcome) Reserved() float64 { return o.Mean() / float64(o.scenario.Expert) }

// Starved returns the share of the CPU work above the request.
func (o *Outcome) Starved() float64 { return o.starved / o.used }

func (o *Outcome) kills() (sum int) {
	for _, at := range o.Kills {
		if o.isSettled(at) {
			sum++
		}
	}
	return sum
}

// ChangesPerDay returns the number of request changes per pod and day.
func (o *Outcome) ChangesPerDay() float64 { return float64(o.changes) / (o.podTime / float64(day)) }

// RequestRange returns the lowest and the highest mean request of a pod between two times since
// begin.
func (o *Outcome) RequestRange(from, to time.Duration) (lowest, highest float64) {
	lowest = math.Inf(1)
	for i := range o.Frames {
		at := time.Duration(float64(i) / frames * float64(o.scenario.Length))
		if request, known := o.Frames[i].Request(); known && at >= from && at < to {
			lowest, highest = min(lowest, request), max(highest, request)
		}
	}
	return lowest, highest
}

func candidates(s *Scenario) []namedCandidate {
	return []namedCandidate{
		{"expert", expert{replay.Fixed{Size: resources.List{}.With(s.Kind, s.Expert)}}},
		{"vpa", newRecommender("vpa", s.Kind)},
		{"loadline", newRecommender("loadline", s.Kind)},
	}
}

type namedCandidate struct {
	name string
	candidate
}
