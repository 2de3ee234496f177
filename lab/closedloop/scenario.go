package main

import (
	"math"
	"math/rand/v2"
	"time"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

const (
	day = 24 * time.Hour
	mib = 1 << 20
)

// begin is when all scenarios do, a Monday at midnight.
var begin = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// Scenario is a workload whose right size a person can tell.
type Scenario struct {
	Name    string // of the drawing
	Title   string
	Happens string // what the workload does
	Why     string // the size of the expert is right
	Verdict string // what to learn from the outcome

	Kind     resources.Kind   // that is sized
	Declared resources.Amount // request that the workload is written with
	Expert   resources.Amount // request that an expert would set
	Limit    float64          // of memory, as a multiple of the request; 0 = none
	Length   time.Duration
	Settle   time.Duration // after it the outcome counts
	Step     time.Duration // between two measurements
	ByAge    bool          // memory goes by the age of the container: one that was killed begins afresh; else by the clock

	shape func(*load) // adds the pods
}

// setup is that of each pod: changed in place, and if killed begun anew.
func (s *Scenario) setup() replay.Setup {
	setup := replay.DefaultSetup(s.Kind)
	setup.Scrape, setup.Startup, setup.Afresh = s.Step, true, s.ByAge
	setup.Flat = resources.List{}.With(s.Kind, s.Declared)
	setup.Limits[resources.Memory] = replay.Limit{}
	if s.Limit > 0 {
		setup.Limits[resources.Memory] = replay.Limit{Policy: replay.Proportional, Factor: s.Limit}
	}
	return setup
}

// Pod is one pod: what it used, or would have if nobody had killed it.
type Pod struct{ replay.Recording }

func (p *Pod) start() int64 { return p.At[0] }

// pods returns the pods of the scenario, the same ones each time.
func (s *Scenario) pods() []Pod {
	l := &load{scenario: s, noise: rand.New(rand.NewPCG(17, uint64(len(s.Name))))}
	s.shape(l)
	return l.pods
}

// load makes the pods of a scenario.
type load struct {
	scenario *Scenario
	noise    *rand.Rand
	pods     []Pod
}

// idleCPU is what a container whose memory is of interest uses, in millicores.
const idleCPU = 50

// pod adds a pod that lives from one time to another, both since the begin of the
// scenario. use says what it uses, in millicores or bytes, at a time since then and at an
// age of its own; a tenth of noise is added.
func (l *load) pod(from, to time.Duration, use func(now, age time.Duration) float64) {
	var p Pod
	for now := from; now < min(to, l.scenario.Length); now += l.scenario.Step {
		p.At = append(p.At, begin.Add(now).UnixNano())
		value := math.Round(use(now, now-from) * (0.95 + 0.1*l.noise.Float64()))
		other := math.NaN()
		if l.scenario.Kind == resources.Memory {
			other = idleCPU
		}
		p.Use[1-l.scenario.Kind] = append(p.Use[1-l.scenario.Kind], other)
		p.Use[l.scenario.Kind] = append(p.Use[l.scenario.Kind], value)
	}
	if len(p.At) > 1 {
		l.pods = append(l.pods, p)
	}
}

// within reports whether a time is within a length after a time of each period.
func within(now, period, after, length time.Duration) bool {
	since := (now - after) % period
	return now >= after && since < length
}
