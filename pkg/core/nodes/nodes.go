// Package nodes scores recipes by the number of nodes that their requests require: it places
// recorded containers on simulated nodes and replays their usage.
//
// Play replays a recording under several methods and returns a Trace for each, with usage, requests
// and limits by step. A Fleet is a set of pods that are shifted copies of traces. Run simulates a
// fleet under one Variant and returns a Score. Sweep repeats this with scaled requests, so that
// methods can be compared at the same share of unserved work. Summarise compares methods, with
// intervals from drawn fleets.
//
//	step   read usage and requests → resize, or place all pods → share → consolidate
//	       → serve CPU by weight → evict if memory runs out → count
//
// Nodes do not affect usage: unserved work is lost, and recommenders observe the recorded usage.
// Output is deterministic.
package nodes

import (
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Options holds the parameters that all compared methods share.
type Options struct {
	Allocatable           [resources.Kinds]float64 // of a node: millicores and bytes
	Kinds                 [resources.Kinds]bool    // simulated resources, pods need none of the others
	Share                 [resources.Kinds]bool    // resources that methods with sharing share
	PlacementInterval     time.Duration            // interval between placements of all pods, 0 = only at the start
	ConsolidationInterval time.Duration            // minimum time between consolidations, also between shrinks of a node, 0 = none
	ShareOnArrival        bool                     // compute shares on arrival, else only in the next round
	NoMoves               bool                     // only the kubelet evicts between placements, growth must fit
}

// Variant determines how the requests of one method are used.
type Variant struct {
	Rule   *sharing.Rule            // nil = no sharing, each pod has its request
	Factor [resources.Kinds]float64 // for requests, bases, peaks and their limits
}

// UnitFactors returns the factors that leave requests unchanged.
func UnitFactors() [resources.Kinds]float64 { return [resources.Kinds]float64{1, 1} }

const shareInterval = 5 * time.Minute

// shrinkInterval is the minimum time between two rounds that shrink shares on a node, without
// consolidation and without new pods. Usage varies within the hour, and shrinking at once moves
// pods two to three times as often, for the same nodes and unserved work.
const shrinkInterval = time.Hour

// Run simulates a fleet under one variant of a method, whose traces must be of the recordings of
// the fleet. Allocatable must be positive for each simulated resource.
func Run(f *Fleet, courses []*Trace, o Options, v Variant) Score {
	s := newSimulation(f, courses, o, v)
	for step := range f.Steps {
		s.step(step)
	}
	return s.finish()
}

type simulation struct {
	options   Options
	variant   Variant
	shared    [resources.Kinds]bool // resources shared by this variant
	length    time.Duration         // of a step
	now       int                   // current step
	pods      []pod
	nodes     []node // a node without pods does not exist
	score     Score
	grownPods []int // pods that grew in place in this step
	scratch   scratch
}

type pod struct {
	trace           *Trace
	name            string // determines the order of pods on a sharing node
	at              int    // current step of the trace
	length          int    // number of steps after which the trace repeats
	node            int
	request         [resources.Kinds]float64 // in force
	previousRequest [resources.Kinds]float64 // request at the start of the step
	use             [resources.Kinds]float64 // in this step
	awaitsShare     bool                     // has its arrival request, which no share has reduced yet
	aboveLimit      bool                     // memory usage exceeded the limit in the last step
	work            float64                  // CPU demand so far, in millicores times steps
	lost            float64                  // unserved part of work
}

type node struct {
	pods       []int
	sum        [resources.Kinds]float64 // of requests
	used       [resources.Kinds]float64 // demand in this step
	cpuUsed    float64                  // CPU utilization in the last step, 0 to 1
	lastShrink int                      // step of the last reduction of shares, -1 = never
}

func newSimulation(f *Fleet, courses []*Trace, o Options, v Variant) *simulation {
	s := &simulation{options: o, variant: v, length: f.Step, pods: make([]pod, len(f.Pods))}
	for i, p := range f.Pods {
		s.pods[i] = pod{trace: courses[p.Trace], name: fmt.Sprintf("%06d", i), at: p.From, length: p.Length, node: nowhere}
	}
	for k := range s.shared {
		s.shared[k] = v.Rule != nil && o.Share[k] && o.Kinds[k]
	}
	return s
}

func (s *simulation) isDue(interval time.Duration) bool {
	return interval > 0 && s.now%max(int(interval/s.length), 1) == 0
}

func (s *simulation) step(now int) {
	s.now = now
	s.readUsage()
	if now == 0 || s.isDue(s.options.PlacementInterval) {
		s.place()
	} else {
		s.resize()
		if s.variant.Rule != nil && s.isDue(shareInterval) {
			s.share()
		}
		if s.isDue(s.options.ConsolidationInterval) {
			s.consolidate()
		}
	}
	s.serve()
	s.evictForMemory()
	s.endStep()
}

func (s *simulation) readUsage() {
	for i := range s.pods {
		p := &s.pods[i]
		p.previousRequest = p.request
		for k := range resources.Kind(resources.Kinds) {
			if s.options.Kinds[k] {
				p.use[k] = float64(p.trace.Use[k][p.at])
			}
		}
	}
}

// requested returns the applied request or, with sharing, the whole peak with which a pod arrives.
func (s *simulation) requested(p *pod) (r [resources.Kinds]float64) {
	for k := range resources.Kind(resources.Kinds) {
		switch {
		case !s.options.Kinds[k]:
		case s.shared[k]:
			_, r[k] = s.span(p, k)
		default:
			r[k] = s.scaled(p.trace.Request[k], p.at, k)
		}
	}
	return r
}

// span returns the base and the peak of a pod. Without a recommendation both equal its request.
func (s *simulation) span(p *pod, k resources.Kind) (base, peak float64) {
	if p.trace.Peak[k] == nil || p.trace.Peak[k][p.at] == 0 {
		r := s.scaled(p.trace.Request[k], p.at, k)
		return r, r
	}
	base = s.scaled(p.trace.Base[k], p.at, k)
	return base, max(base, s.scaled(p.trace.Peak[k], p.at, k))
}

func (s *simulation) scaled(amounts []float32, at int, k resources.Kind) float64 {
	return min(float64(amounts[at])*s.variant.Factor[k], s.options.Allocatable[k])
}

func (s *simulation) endStep() {
	for i := range s.nodes {
		if len(s.nodes[i].pods) > 0 {
			s.score.Nodes++
		}
	}
	for i := range s.pods {
		s.pods[i].advance()
	}
}

func (p *pod) advance() {
	if p.at++; p.at == p.length {
		p.at = 0
	}
}

func (s *simulation) finish() Score {
	steps := s.score.Nodes
	s.score.Nodes = 0
	hours := s.length.Hours()
	if span := float64(max(s.now+1, 1)); len(s.pods) > 0 {
		s.score.Nodes = steps / span
		s.score.NodeHours = steps * hours
		s.score.PodDays = span * hours / 24 * float64(len(s.pods))
	}
	for i := range s.pods {
		p := &s.pods[i]
		s.score.Work += p.work / 1000 * hours
		s.score.Lost += p.lost / 1000 * hours
		if p.work > 0 {
			s.score.Worst = max(s.score.Worst, p.lost/p.work)
		}
	}
	return s.score
}
