package recipe

import (
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/core/sketch"
)

// cruiseKube shares what a node has left, as published. Its target is the peak that a pod is
// given when it is created: the highest use at this hour of the day in a week, or of the last
// hour, with the time that work waited for CPU counted as use where it is known. Its base, a
// quantile of the last minutes, is the lower bound.
//
// The published rule looks at three more amounts when a pod is created: the highest use of the
// last ten minutes, of CPU, and of the last thirty, of memory, both of which are within the
// last hour, and the memory at an OOM kill.
type cruiseKube struct {
	none
	base       float64
	cpuMinutes float64
	memMinutes float64
	cpuMost    float64 // millicores
}

func newCruiseKube() *cruiseKube {
	return &cruiseKube{base: 0.75, cpuMinutes: 10, memMinutes: 30, cpuMost: 10_000}
}

func (c *cruiseKube) settings() []setting {
	return []setting{
		{"base", &c.base, 0, 1}, {"cpu-minutes", &c.cpuMinutes, 1, 30}, {"memory-minutes", &c.memMinutes, 1, 30},
		{"cpu-most", &c.cpuMost, 1, 1e9},
	}
}

func (c *cruiseKube) make() Recipe {
	const cpuLeast, memoryLeast = 1, 16e6 // millicores, bytes
	const cpu, memory = resources.CPU, resources.Memory
	var r Recipe
	r.Needs = sketch.Needs{Hours: [resources.Kinds]bool{cpu: true, memory: true}, Pressure: true, Kills: true}
	r.Sharing = &sharing.Rule{Pooling: sharing.Largest}
	r.Target[cpu] = Chain{HourOfDay(cpu), OrLastHour(cpu), UnderPressure((*sketch.Hours).Peak), Up(Range(cpuLeast, c.cpuMost)), Floor(cpu)}
	r.Lower[cpu] = base(cpu, c.cpuMinutes, c.base, Up(AtLeast(cpuLeast)), Floor(cpu))
	r.Target[memory] = Chain{HourOfDay(memory), OrLastHour(memory), AtKill(killAge), AtLeast(memoryLeast), Floor(memory)}
	r.Lower[memory] = base(memory, c.memMinutes, c.base, AtKill(killAge), Up(AtLeast(memoryLeast)), Floor(memory))
	for k := range resources.Kind(resources.Kinds) {
		r.Upper[k] = highestSeen(k)
	}
	return r
}

// Lately begins a chain: a quantile of the use of the last minutes.
func Lately(k resources.Kind, minutes int64, q float64) Step {
	return Step{Name: fmt.Sprintf("%s quantile %g of %d minutes", k, q, minutes), Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Hours[k].Recent(minutes, q)
	}}
}

// AtKill raises to the memory at which the container was killed within an age.
func AtKill(age time.Duration) Step {
	return Step{Name: fmt.Sprintf("or limit at a kill, else use, for %gh", age.Hours()), Apply: func(s Subject, in float64) float64 {
		return max(in, float64(s.Sketch.Kills.Reached(s.Sketch.Now, age)))
	}}
}
