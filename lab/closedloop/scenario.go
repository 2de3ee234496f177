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

// begin is the start of all scenarios, a Monday at midnight.
var begin = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// Scenario is a workload with a known right size.
type Scenario struct {
	Name        string // file name of the drawing
	Title       string
	Description string
	Rationale   string // completes "The expert sets X:"
	Verdict     string // lesson from the outcome

	Kind        resources.Kind   // sized resource
	Declared    resources.Amount // request in the manifest
	Expert      resources.Amount // request that an expert would set
	Limit       float64          // of memory, as a multiple of the request, 0 = none
	Length      time.Duration
	Settle      time.Duration // time before the scored phase
	Step        time.Duration // between two measurements
	MemoryByAge bool          // memory follows the container's age, else the clock

	addPods func(*generator) // adds the pods
}

// setup returns the replay setup of each pod: resized in place, and restarted after a kill.
func (s *Scenario) setup() replay.Setup {
	setup := replay.DefaultSetup(s.Kind)
	setup.Scrape, setup.Startup, setup.MemoryFromStart = s.Step, true, s.MemoryByAge
	setup.Initial = resources.List{}.With(s.Kind, s.Declared)
	setup.Limits[resources.Memory] = replay.Limit{}
	if s.Limit > 0 {
		setup.Limits[resources.Memory] = replay.Limit{Policy: replay.Proportional, Factor: s.Limit}
	}
	return setup
}

// Pod is the usage of one pod without kills.
type Pod struct{ replay.Recording }

func (p *Pod) start() int64 { return p.At[0] }

// pods returns the pods of the scenario, the same on each call.
func (s *Scenario) pods() []Pod {
	l := &generator{scenario: s, noise: rand.New(rand.NewPCG(17, uint64(len(s.Name))))}
	s.addPods(l)
	return l.pods
}

type generator struct {
	scenario *Scenario
	noise    *rand.Rand
	pods     []Pod
}

// idleCPU is the CPU usage of a container in a memory scenario, in millicores.
const idleCPU = 50

// addPod adds a pod that lives from one time to another, both since begin. usageAt returns the
// usage in millicores or bytes at a time since begin and at an age of the pod. The samples vary by
// ±5% around it.
func (l *generator) addPod(from, to time.Duration, usageAt func(now, age time.Duration) float64) {
	var p Pod
	for now := from; now < min(to, l.scenario.Length); now += l.scenario.Step {
		p.At = append(p.At, begin.Add(now).UnixNano())
		value := math.Round(usageAt(now, now-from) * (0.95 + 0.1*l.noise.Float64()))
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

// isWithin reports whether a time is in an interval that starts at after and recurs every period.
func isWithin(now, period, after, length time.Duration) bool {
	since := (now - after) % period
	return now >= after && since < length
}
