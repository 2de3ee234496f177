package recipe

import (
	"fmt"
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/core/sketch"
)

// shared holds the parameters of the CPU preset "shared": a pod gets its base, plus a part of the
// difference between peak and base from the headroom of its node.
type shared struct {
	base, minutes float64 // quantile of the last minutes
	calm, hours   bool    // the peak includes the calm target, and the hours of a week
	root          bool    // else Largest pooling
	leaveAt       float64 // see sharing.Rule
}

func newShared() shared {
	return shared{base: 0.75, minutes: 10, calm: true, hours: true, root: true, leaveAt: 1}
}

func (c *shared) choices() []choice {
	return []choice{
		{name: "peak", options: []string{"larger", "calm", "hours"}, apply: func(v string) { c.calm, c.hours = v != "hours", v != "calm" }},
		{name: "pooling", options: []string{"root", "largest"}, apply: func(v string) { c.root = v == "root" }},
	}
}

func (c *shared) settings() []setting {
	return []setting{{"base", &c.base, 0, 1}, {"base-minutes", &c.minutes, 1, 30}, {"leave-at", &c.leaveAt, 0, 1}}
}

func (c *shared) peak(calm Chain) Chain {
	if !c.hours {
		return calm
	}
	first := HourOfDay(resources.CPU)
	if !c.calm {
		calm = nil
	} else {
		first.Name = "or " + first.Name
	}
	return append(slices.Clone(calm), first, OrLastHour(resources.CPU), UnderPressure((*sketch.Hours).Peak), RoundUp(AtLeast(1)))
}

func (c *shared) share(r *Recipe) {
	const k = resources.CPU
	r.Needs.Hours[k], r.Needs.Pressure = true, true
	r.Lower[k] = baseChain(k, c.minutes, c.base, UpToGrid(), Floor(k))
	r.Upper[k] = highestChain(k)
	r.Sharing = &sharing.Rule{Pooling: sharing.LargestHeadroom, EvictAbove: c.leaveAt}
	if c.root {
		r.Sharing.Pooling = sharing.RootSumSquares
	}
}

func baseChain(k resources.Kind, minutes, q float64, raise ...Step) Chain {
	chain := Chain{RecentQuantile(k, int64(minutes), q)}
	if k == resources.CPU {
		chain = append(chain, UnderPressure(func(h *sketch.Hours) float64 { return h.Recent(int64(minutes), q) }))
	}
	return append(append(chain, raise...), NoMoreThanTarget(k))
}

func highestChain(k resources.Kind) Chain {
	chain := Chain{FromTarget(k), OrHighestOfWeek(k)}
	if k == resources.CPU {
		chain = append(chain, UnderPressure((*sketch.Hours).Highest))
	}
	return chain
}

// HourOfDay raises the amount to the week's highest usage at this hour. It may begin a chain.
func HourOfDay(k resources.Kind) Step {
	return Step{Name: k.String() + " peak of this hour of the day", Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Hours[k].SameHour())
	}}
}

// OrLastHour raises the amount to the highest usage of the last hour.
func OrLastHour(k resources.Kind) Step {
	return Step{Name: "or of the last hour", Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Hours[k].LastHour())
	}}
}

// OrHighestOfWeek raises the amount to the highest usage of the last seven days.
func OrHighestOfWeek(k resources.Kind) Step {
	return Step{Name: "or highest of seven days", Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Hours[k].Highest())
	}}
}

// UnderPressure raises the amount to the CPU demand without waiting time, if that is known.
func UnderPressure(of func(*sketch.Hours) float64) Step {
	return Step{Name: "or with the time that work waited for CPU", Apply: func(s Subject, in float64) float64 {
		if s.Sketch.PressureHours == nil {
			return in
		}
		return max(in, of(s.Sketch.PressureHours))
	}}
}

const gridRatio = 1.05

var logGrid = math.Log(gridRatio)

// UpToGrid rounds up to the next power of gridRatio, so that small variations often have no effect.
func UpToGrid() Step {
	return Step{Name: "up to the next step of 5 %", Apply: func(_ Subject, in float64) float64 {
		power := math.Ceil(math.Log(in)/logGrid - 1e-9)
		return max(in, math.Ceil(math.Exp(power*logGrid)))
	}}
}

// NoMoreThanTarget limits the amount to the target.
func NoMoreThanTarget(k resources.Kind) Step {
	return Step{Name: "no more than the target", Apply: func(s Subject, in float64) float64 {
		return min(in, float64(s.Target.Value(k)))
	}}
}

// cruiseKube shares the node headroom as published. Its target is the peak of a created pod: the
// highest usage at this hour of the day in a week, or in the last hour, including the known waiting
// time for CPU. Its lower bound is the base, a quantile of the last minutes.
//
// The published rule uses three more amounts at pod creation: the peak CPU of the last 10 minutes
// and the peak memory of the last 30 minutes, which are both within the last hour, and the memory
// at an OOM kill.
type cruiseKube struct {
	noChoices
	base       float64
	cpuMinutes float64
	memMinutes float64
	maxCPU     float64 // millicores
}

func newCruiseKube() *cruiseKube {
	return &cruiseKube{base: 0.75, cpuMinutes: 10, memMinutes: 30, maxCPU: 10_000}
}

func (c *cruiseKube) settings() []setting {
	return []setting{
		{"base", &c.base, 0, 1}, {"cpu-minutes", &c.cpuMinutes, 1, 30}, {"memory-minutes", &c.memMinutes, 1, 30},
		{"cpu-max", &c.maxCPU, 1, 1e9},
	}
}

func (c *cruiseKube) build() Recipe {
	const cpuLeast, memoryLeast = 1, 16e6 // millicores, bytes
	const cpu, memory = resources.CPU, resources.Memory
	var r Recipe
	r.Needs = sketch.Needs{Hours: [resources.Kinds]bool{cpu: true, memory: true}, Pressure: true, Kills: true}
	r.Sharing = &sharing.Rule{Pooling: sharing.LargestHeadroom}
	r.Target[cpu] = Chain{HourOfDay(cpu), OrLastHour(cpu), UnderPressure((*sketch.Hours).Peak), RoundUp(Range(cpuLeast, c.maxCPU)), Floor(cpu)}
	r.Lower[cpu] = baseChain(cpu, c.cpuMinutes, c.base, RoundUp(AtLeast(cpuLeast)), Floor(cpu))
	r.Target[memory] = Chain{HourOfDay(memory), OrLastHour(memory), AtKill(killAge), AtLeast(memoryLeast), Floor(memory)}
	r.Lower[memory] = baseChain(memory, c.memMinutes, c.base, AtKill(killAge), RoundUp(AtLeast(memoryLeast)), Floor(memory))
	for k := range resources.Kind(resources.Kinds) {
		r.Upper[k] = highestChain(k)
	}
	return r
}

// RecentQuantile begins a chain with a quantile of the usage of the last minutes.
func RecentQuantile(k resources.Kind, minutes int64, q float64) Step {
	return Step{Name: fmt.Sprintf("%s quantile %g of %d minutes", k, q, minutes), Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Hours[k].Recent(minutes, q)
	}}
}

// AtKill raises the amount to the memory at an OOM kill within an age.
func AtKill(age time.Duration) Step {
	return Step{Name: fmt.Sprintf("or limit at an OOM kill, else usage, for %gh", age.Hours()), Apply: func(s Subject, in float64) float64 {
		return max(in, float64(s.Sketch.Kills.ReachedMemory(s.Sketch.Now, age)))
	}}
}
