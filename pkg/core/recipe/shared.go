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

// shared is what the preset of CPU that is for sharing adds to the recipe loadline: its pods get
// a base and, of what their node has left, a part of what their peak is above it.
type shared struct {
	base, minutes float64 // the quantile of the last minutes that a base is
	calm, hours   bool    // whether the peak is at least the target of calm, and what the hours of a week say
	root          bool    // else the largest headroom is pooled
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

// peak returns the chain of the peak, of that which calm requests.
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
	return append(slices.Clone(calm), first, OrLastHour(resources.CPU), UnderPressure((*sketch.Hours).Peak), Up(AtLeast(1)))
}

// share gives a recipe that has its target the bounds and the rule that sharing takes.
func (c *shared) share(r *Recipe) {
	const k = resources.CPU
	r.Needs.Hours[k], r.Needs.Pressure = true, true
	r.Lower[k] = base(k, c.minutes, c.base, UpToGrid(), Floor(k))
	r.Upper[k] = highestSeen(k)
	r.Sharing = &sharing.Rule{Pooling: sharing.Largest, LeaveAt: c.leaveAt}
	if c.root {
		r.Sharing.Pooling = sharing.Root
	}
}

// base returns the chain of a lower bound that is what a container uses nearly always: a
// quantile of the last minutes, raised by further steps, and never above the peak.
func base(k resources.Kind, minutes, q float64, raise ...Step) Chain {
	chain := Chain{Lately(k, int64(minutes), q)}
	if k == resources.CPU {
		chain = append(chain, UnderPressure(func(h *sketch.Hours) float64 { return h.Recent(int64(minutes), q) }))
	}
	return append(append(chain, raise...), NoMoreThanTarget(k))
}

// highestSeen returns the chain of an upper bound that is the highest use of a week, or the target if that is more.
func highestSeen(k resources.Kind) Chain {
	chain := Chain{FromTarget(k), OrHighestOfWeek(k)}
	if k == resources.CPU {
		chain = append(chain, UnderPressure((*sketch.Hours).Highest))
	}
	return chain
}

// HourOfDay raises to the highest use at this hour of the day in a week. As the first step it begins a chain.
func HourOfDay(k resources.Kind) Step {
	return Step{Name: k.String() + " peak of this hour of the day", Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Hours[k].SameHour())
	}}
}

// OrLastHour raises to the highest use of the last hour.
func OrLastHour(k resources.Kind) Step {
	return Step{Name: "or of the last hour", Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Hours[k].LastHour())
	}}
}

// OrHighestOfWeek raises to the highest use of the last seven days.
func OrHighestOfWeek(k resources.Kind) Step {
	return Step{Name: "or highest of seven days", Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Hours[k].Highest())
	}}
}

// UnderPressure raises to what there would have been had CPU work never waited: of is the same of that as of the use.
// Where nobody knows how long it waited, as with the metrics API, the amount stays.
func UnderPressure(of func(*sketch.Hours) float64) Step {
	return Step{Name: "or with the time that work waited for CPU", Apply: func(s Subject, in float64) float64 {
		if s.Sketch.Pressed == nil {
			return in
		}
		return max(in, of(s.Sketch.Pressed))
	}}
}

// gridRatio is the ratio of two neighbouring amounts of the grid of UpToGrid.
const gridRatio = 1.05

var logGrid = math.Log(gridRatio)

// UpToGrid raises to the next power of gridRatio, in whole millicores or bytes. So an amount
// that moves by less often stays the same.
func UpToGrid() Step {
	return Step{Name: "up to the next step of 5 %", Apply: func(_ Subject, in float64) float64 {
		power := math.Ceil(math.Log(in)/logGrid - 1e-9)
		return max(in, math.Ceil(math.Exp(power*logGrid)))
	}}
}

// NoMoreThanTarget lowers to the target.
func NoMoreThanTarget(k resources.Kind) Step {
	return Step{Name: "no more than the target", Apply: func(s Subject, in float64) float64 {
		return min(in, float64(s.Target.Value(k)))
	}}
}

// cruiseKube shares what a node has left, as published. Its target is the peak that a pod is given when it is created:
// the highest use at this hour of the day in a week, or of the last hour, with the time that work waited for CPU
// counted as use where it is known. Its base, a quantile of the last minutes, is the lower bound.
//
// The published rule looks at three more amounts when a pod is created: the highest use of the last ten minutes, of
// CPU, and of the last thirty, of memory, both of which are within the last hour, and the memory at an OOM kill.
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
