package recipe

import (
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// autopilot implements both recommenders of the Autopilot paper: statistics of a moving window, and
// an ensemble of models of which the cheapest is chosen. Parameters that the paper omits are
// explained in lab/docs/recipe-design.md.
type autopilot struct {
	ensemble bool

	cpu, memory              string
	cpuHours, memoryHours    float64 // half-lives
	days                     float64
	cpuMargin, memoryMargin  float64
	sustained                float64 // minutes for which CPU usage must have reached a level, 0 as published
	cpuLower, cpuUpper       float64
	memoryLower, memoryUpper float64

	costs   [resources.Kinds]sketch.Costs
	decays  [resources.Kinds][2]float64
	margins [resources.Kinds][3]float64 // of the models, a negative one is omitted
}

func newAutopilot() *autopilot {
	return &autopilot{
		cpu: "p95", memory: "max", cpuHours: 12, memoryHours: 48, days: 7, cpuMargin: 0.10, memoryMargin: 0.10,
		cpuLower: defaultLower[resources.CPU], cpuUpper: defaultUpper[resources.CPU], memoryLower: defaultLower[resources.Memory], memoryUpper: defaultUpper[resources.Memory],
		costs: [resources.Kinds]sketch.Costs{
			{Overrun: 20, Change: 0.02, Switch: 0.05, Learning: 0.01},
			{Overrun: 1000, Change: 0.02, Switch: 0.05, Learning: 0.001},
		},
		decays:  [resources.Kinds][2]float64{{0.001, 0.005}, {0.0003, 0.001}},
		margins: [resources.Kinds][3]float64{{0, 0.1, 0.25}, {0.1, -1, -1}},
	}
}

func (a *autopilot) choices() []choice {
	return []choice{
		{name: "models", options: []string{"window", "ensemble"}, apply: func(option string) { a.ensemble = option == "ensemble" }},
		{name: "cpu", options: []string{"p95", "p90", "mean"}, apply: func(option string) { a.cpu = option }},
		{name: "memory", options: []string{"max", "p98", "middle"}, apply: func(option string) { a.memory = option }},
	}
}

func (a *autopilot) settings() []setting {
	list := []setting{
		{"cpu-half-life-hours", &a.cpuHours, 0.1, 1000}, {"memory-half-life-hours", &a.memoryHours, 0.1, 1000}, {"days", &a.days, 1, 14},
		{"cpu-margin", &a.cpuMargin, 0, 10}, {"memory-margin", &a.memoryMargin, 0, 10},
		{"sustained-minutes", &a.sustained, 0, 1000},
		{"cpu-lower", &a.cpuLower, 0, 1}, {"cpu-upper", &a.cpuUpper, 1, 100},
		{"memory-lower", &a.memoryLower, 0, 1}, {"memory-upper", &a.memoryUpper, 1, 100},
	}
	for k := range resources.Kind(resources.Kinds) {
		c, name := &a.costs[k], k.String()
		list = append(list,
			setting{name + "-overrun-cost", &c.Overrun, 0.01, 1e6}, setting{name + "-change-cost", &c.Change, 0, 1000},
			setting{name + "-switch-cost", &c.Switch, 0, 1000}, setting{name + "-learning", &c.Learning, 0.00001, 1},
			setting{name + "-slow-decay", &a.decays[k][0], 0.00001, 0.5}, setting{name + "-fast-decay", &a.decays[k][1], 0.00001, 0.5},
			setting{name + "-model-margin-1", &a.margins[k][0], 0, 10}, setting{name + "-model-margin-2", &a.margins[k][1], -1, 10},
			setting{name + "-model-margin-3", &a.margins[k][2], -1, 10})
	}
	return list
}

func (a *autopilot) build() Recipe {
	var r Recipe
	if a.ensemble {
		r = a.models()
	} else {
		r = a.window()
	}
	for k := range resources.Kind(resources.Kinds) {
		r.Target[k] = append(r.Target[k], AtLeast(1), Floor(k)) // no request is 0
	}
	setDefaultBounds(&r, [resources.Kinds]float64{a.cpuLower, a.memoryLower}, [resources.Kinds]float64{a.cpuUpper, a.memoryUpper})
	return r
}

func (a *autopilot) models() Recipe {
	r := Recipe{Needs: sketch.Needs{Peaks: true}}
	for k := range resources.Kind(resources.Kinds) {
		var margins []float64
		for _, m := range a.margins[k] {
			if m >= 0 {
				margins = append(margins, m)
			}
		}
		r.Needs.Models[k] = sketch.NewModelShape(k, a.decays[k], margins, a.costs[k])
		r.Target[k] = Chain{CheapestModel(k)}
	}
	r.Target[resources.Memory] = append(r.Target[resources.Memory], CurrentPeak())
	return r
}

func (a *autopilot) window() Recipe {
	shape := func(k resources.Kind, halfLife, share float64) *sketch.LoadShape {
		return sketch.NewLoadShape(k, [2]time.Duration{hours(halfLife), hours(halfLife)}, [2]float64{share, 0}, true, true)
	}
	r := Recipe{Needs: sketch.Needs{Peaks: true}}
	cpu := shape(resources.CPU, a.cpuHours, map[string]float64{"p95": 0.95, "p90": 0.90, "mean": sketch.Average}[a.cpu]).Sustained(hours(a.sustained / 60))
	r.Needs.Load[resources.CPU] = cpu
	r.Target[resources.CPU] = Chain{Level(cpu, 0), LastHour(resources.CPU), AddFraction(a.cpuMargin)}

	days := int64(a.days)
	if a.memory == "max" {
		r.Target[resources.Memory] = Chain{Highest(days)}
	} else {
		memory := shape(resources.Memory, a.memoryHours, map[string]float64{"p98": 0.98, "middle": 0.60}[a.memory])
		r.Needs.Load[resources.Memory] = memory
		r.Target[resources.Memory] = Chain{Level(memory, 0), LastHour(resources.Memory)}
		if a.memory == "middle" {
			r.Target[resources.Memory] = append(r.Target[resources.Memory], OrHighest(0.5, days))
		}
	}
	r.Target[resources.Memory] = append(r.Target[resources.Memory], AddFraction(a.memoryMargin))
	return r
}

// Highest begins a memory chain with the highest peak of some days.
func Highest(days int64) Step {
	return Step{Name: fmt.Sprintf("highest peak of %d days", days), Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Peaks.Highest(days)
	}}
}

// OrHighest raises the amount to a share of the highest peak of some days.
func OrHighest(share float64, days int64) Step {
	return Step{Name: fmt.Sprintf("or %g of the highest peak of %d days", share, days), Apply: func(s Subject, in float64) float64 {
		return max(in, share*s.Sketch.Peaks.Highest(days))
	}}
}

// CurrentPeak raises the amount to the peak of the open window. Memory in use cannot be reclaimed,
// and in the first minutes no model has a limit.
func CurrentPeak() Step {
	return Step{Name: "or highest of the last hours", Apply: func(s Subject, in float64) float64 { return max(in, s.Sketch.Peaks.CurrentPeak()) }}
}

// CheapestModel begins a chain with the limit of the model with the lowest past cost.
func CheapestModel(k resources.Kind) Step {
	return Step{Name: k.String() + " limit of the model that cost least", Apply: func(s Subject, _ float64) float64 {
		return s.Sketch.Models[k].Limit()
	}}
}
