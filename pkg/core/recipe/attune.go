package recipe

import (
	"cmp"
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// Attune is the settings of one kind of the recipe.
type Attune struct {
	Percentile  float64 // 50, 90, 95 or 99
	Overhead    float64 // percent
	Sensitivity float64 // to bursts; 0 or below = none
	Published   bool    // confidence as the published text has it, else as the shipped program does
	Least, Most float64 // millicores or bytes
	Change      float64 // most change at a time, percent
	Increase    float64 // the same upwards, 0 = Change
	Decrease    float64 // and downwards
	MayDecrease bool
	FromCPU     float64 // memory: GiB a core, in place of what was used; 0 = not so
}

// usualChange is the most change where none is set, in percent.
const usualChange = 50

// Caps returns the most change upwards and downwards, in percent.
func (a Attune) Caps() (increase, decrease float64) {
	both := cmp.Or(a.Change, usualChange)
	return cmp.Or(a.Increase, both), cmp.Or(a.Decrease, both)
}

// What is fixed: how many points of five minutes a recommendation takes, and how long
// after a change there is no other one.
const (
	leastPoints = 48
	cooldown    = time.Hour
)

// attune is the recipe: a percentile of the week or of its worst hour, and margins.
type attune struct {
	unfloored
	kinds [resources.Kinds]Attune
	mean  bool // of the pods of a workload; else the one that uses most
}

func newAttune(published bool) *attune {
	return &attune{kinds: [resources.Kinds]Attune{
		{Percentile: 95, Overhead: 20, Sensitivity: 0.1, Published: published, Least: 1, Most: 4000, Change: 50, MayDecrease: true},
		{Percentile: 99, Overhead: 30, Sensitivity: 0.1, Published: published, Least: 4 << 20, Most: 8 << 30, Change: 30},
	}}
}

func (a *attune) choices() []choice {
	list := []choice{
		{name: "memory-decrease", options: []string{"no", "yes"}, apply: func(option string) { a.kinds[resources.Memory].MayDecrease = option == "yes" }},
		{name: "pods", options: []string{"max", "mean"}, apply: func(option string) { a.mean = option == "mean" }},
	}
	for k := range resources.Kind(resources.Kinds) {
		list = append(list, choice{name: k.String() + "-percentile", options: []string{"50", "90", "95", "99"}, apply: func(option string) {
			a.kinds[k].Percentile, _ = strconv.ParseFloat(option, 64) // it is one of these
		}})
	}
	return list
}

func (a *attune) settings() []setting {
	list := []setting{{"memory-from-cpu-ratio", &a.kinds[resources.Memory].FromCPU, 0, 1000}}
	for k := range resources.Kind(resources.Kinds) {
		c, name := &a.kinds[k], k.String()
		list = append(list,
			setting{name + "-overhead", &c.Overhead, 0, 900},
			setting{name + "-burst-sensitivity", &c.Sensitivity, 0, 1}, setting{name + "-least", &c.Least, 1, 1e14},
			setting{name + "-most", &c.Most, 1, 1e14}, setting{name + "-max-change", &c.Change, 1, 100},
			setting{name + "-max-increase", &c.Increase, 0, 100}, setting{name + "-max-decrease", &c.Decrease, 0, 100})
	}
	return list
}

func (a *attune) make() Recipe {
	r := Recipe{Needs: sketch.Needs{Points: true, Mean: a.mean}, UsesCurrent: true, LeastPoints: leastPoints}
	for k := range resources.Kind(resources.Kinds) {
		habits := func(s Subject) *sketch.Habits { return s.Sketch.Points[k].Habits() }
		r.Target[k], r.PointsOf[k] = a.kinds[k].Chain(k, habits), k
		if a.kinds[k].FromCPU > 0 {
			r.Target[k] = a.kinds[k].MemoryChain(r.Target[resources.CPU])
			r.PointsOf[k] = resources.CPU
		}
	}
	for k := range resources.Kind(resources.Kinds) {
		r.Target[k] = append(r.Target[k], Floor(k))
	}
	around(&r, lower, upper)
	return r
}

// Chain returns the steps from habits to one request. Each rounds up.
func (a Attune) Chain(k resources.Kind, habits Habits) Chain {
	return append(Chain{
		Up(Worst(k, a.Percentile, habits)),
		Up(Percent(a.Overhead)),
		Up(Burst(a.Sensitivity, habits)),
		Up(Unsure(a.Published, habits)),
	}, a.bounded(k)...)
}

// MemoryChain returns the steps from the CPU request that a chain gives to one of
// memory.
func (a Attune) MemoryChain(cpu Chain) Chain {
	return append(Chain{
		Up(FromCPU(a.FromCPU, cpu)),
		Up(Percent(a.Overhead)),
	}, a.bounded(resources.Memory)...)
}

// bounded are the last steps. The filter of changes comes after the bounds, so a
// request moves into them in several rounds, an hour apart.
func (a Attune) bounded(k resources.Kind) Chain {
	increase, decrease := a.Caps()
	chain := Chain{Range(a.Least, a.Most), Up(ChangeFilter(k, increase, decrease)), OncePer(k, cooldown)}
	if !a.MayDecrease {
		chain = append(chain, NoDecrease(k))
	}
	return chain
}
