// Package nodes judges recipes by the nodes that their requests need: it places recorded
// containers on simulated nodes and lets their recorded use run there.
//
// Play replays a recording under several methods and keeps of each a Course: use, requests and limits step by step. A
// Fleet says which pods there are, as copies of courses that begin at other times. Run lets a fleet run under one
// Variant and returns a Score; Sweep does so with requests of several sizes, so that methods can be compared where they
// leave the same work undone; Summarise does that, with intervals from drawn fleets.
//
//	step   read use and requests → resize, or place all anew → share → consolidate
//	       → serve CPU by weight → evict where memory runs out → count
//
// Nodes do not act back on use: work that is not served is lost, and recommenders see what
// was recorded. Equal input gives equal bytes.
package nodes

import (
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Options is what all methods that are compared have in common.
type Options struct {
	Allocatable [resources.Kinds]float64 // of a node: millicores and bytes
	Kinds       [resources.Kinds]bool    // that count; a pod takes nothing of others
	Share       [resources.Kinds]bool    // that are shared by a method that shares
	Placing     time.Duration            // from one placing of all pods from scratch to the next; 0 = only at the start
	Consolidate time.Duration            // least time between two nodes that are emptied, and with that between two rounds that shrink shares on a node; 0 = none is emptied
	Settle      bool                     // shares on a node are computed when a pod comes to it, too; else in the next round only
	Stay        bool                     // between two placings only the kubelet evicts: what does not fit in place waits
}

// Variant is how the requests of one method are used.
type Variant struct {
	Rule   *sharing.Rule            // nil = nothing is shared: each pod has its request
	Factor [resources.Kinds]float64 // of requests, bases and peaks, and of the limits that go with them
}

// AsIs is the factor of a variant that changes no request.
func AsIs() [resources.Kinds]float64 { return [resources.Kinds]float64{1, 1} }

// shareEvery is the time between two rounds in which shares are computed.
const shareEvery = 5 * time.Minute

// shrinkEvery is the least time between two rounds that shrink shares on a node where no node is emptied,
// but for those in which a pod came. Use goes up and down within the hour: to follow it down at once
// moves pods twice to three times as often, for no fewer nodes and no less work undone.
const shrinkEvery = time.Hour

// Run lets a fleet run on nodes under one variant of a method, of which the courses are: those that the fleet was made
// of, or of the same recordings under another method. Of each kind that counts a node must have something.
func Run(f *Fleet, courses []*Course, o Options, v Variant) Score {
	s := newSimulation(f, courses, o, v)
	for step := range f.Steps {
		s.step(step)
	}
	return s.finish()
}

// simulation is a fleet on its nodes.
type simulation struct {
	options Options
	variant Variant
	shared  [resources.Kinds]bool // kinds that this variant shares
	length  time.Duration         // of a step
	now     int                   // number of the step
	pods    []pod
	nodes   []node // one without pods is not there
	score   Score
	grown   []int // pods that grew in place in this step
	scratch scratch
}

// pod is a running copy of a container.
type pod struct {
	course  *Course
	name    string // for the order in a sharing node
	at      int    // step of the course
	length  int    // steps after which the course begins again
	node    int
	request [resources.Kinds]float64 // in force
	before  [resources.Kinds]float64 // the request at the start of the step
	use     [resources.Kinds]float64 // in this step
	came    bool                     // has not got a share yet that is less than what it came with
	above   bool                     // used more memory than its limit in the last step
	work    float64                  // CPU that it wanted so far, in millicores times steps
	lost    float64                  // of that, what it did not get
}

// node is a node and what is on it. It is there while it has pods.
type node struct {
	pods   []int
	sum    [resources.Kinds]float64 // of requests
	used   [resources.Kinds]float64 // wanted in this step
	busy   float64                  // part of the CPU that was in use in the last step, 0 to 1
	shrunk int                      // step in which shares last became smaller; -1 = never
}

func newSimulation(f *Fleet, courses []*Course, o Options, v Variant) *simulation {
	s := &simulation{options: o, variant: v, length: f.Step, pods: make([]pod, len(f.Pods))}
	for i, p := range f.Pods {
		s.pods[i] = pod{course: courses[p.Course], name: fmt.Sprintf("%06d", i), at: p.From, length: p.Length, node: nowhere}
	}
	for k := range s.shared {
		s.shared[k] = v.Rule != nil && o.Share[k] && o.Kinds[k]
	}
	return s
}

// every reports whether something that is done from time to time is due; 0 = never.
func (s *simulation) every(interval time.Duration) bool {
	return interval > 0 && s.now%max(int(interval/s.length), 1) == 0
}

func (s *simulation) step(now int) {
	s.now = now
	s.read()
	if now == 0 || s.every(s.options.Placing) {
		s.place()
	} else {
		s.resize()
		if s.variant.Rule != nil && s.every(shareEvery) {
			s.share()
		}
		if s.every(s.options.Consolidate) {
			s.consolidate()
		}
	}
	s.serve()
	s.relieve()
	s.count()
}

// read takes what each pod uses in this step.
func (s *simulation) read() {
	for i := range s.pods {
		p := &s.pods[i]
		p.before = p.request
		for k := range resources.Kind(resources.Kinds) {
			if s.options.Kinds[k] {
				p.use[k] = float64(p.course.Use[k][p.at])
			}
		}
	}
}

// asked returns the request that the method has for a pod now: that of its recommender, or
// what it comes with where it shares, its whole peak. No pod asks for more than a node has.
func (s *simulation) asked(p *pod) (r [resources.Kinds]float64) {
	for k := range resources.Kind(resources.Kinds) {
		switch {
		case !s.options.Kinds[k]:
		case s.shared[k]:
			_, r[k] = s.span(p, k)
		default:
			r[k] = s.scaled(p.course.Request[k], p.at, k)
		}
	}
	return r
}

// span returns the base and the peak of a pod. As long as nothing is recommended both are its request.
func (s *simulation) span(p *pod, k resources.Kind) (base, peak float64) {
	if p.course.Peak[k] == nil || p.course.Peak[k][p.at] == 0 {
		r := s.scaled(p.course.Request[k], p.at, k)
		return r, r
	}
	base = s.scaled(p.course.Base[k], p.at, k)
	return base, max(base, s.scaled(p.course.Peak[k], p.at, k))
}

// scaled returns an amount of a course under the factor of the variant, at most a whole node.
func (s *simulation) scaled(amounts []float32, at int, k resources.Kind) float64 {
	return min(float64(amounts[at])*s.variant.Factor[k], s.options.Allocatable[k])
}

// count ends a step.
func (s *simulation) count() {
	for i := range s.nodes {
		if len(s.nodes[i].pods) > 0 {
			s.score.Nodes++
		}
	}
	for i := range s.pods {
		s.pods[i].advance()
	}
}

// advance goes to the next step of the course.
func (p *pod) advance() {
	if p.at++; p.at == p.length {
		p.at = 0
	}
}

// finish returns the score of the whole run.
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
