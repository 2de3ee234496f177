package recipe

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// loadline is our own recipe: memory by the second-highest of the daily peaks of
// two weeks, CPU by shares of the load under a slow and a fast memory.
type loadline struct {
	lifted
	margin         Fixed   // of memory
	volatility     float64 // margin of memory per unit of volatility
	cold, restless float64 // margin of a new container: fixed, and per unit of restlessness
	coldHours      float64 // half-life of that
	declaredHours  float64 // in which a new container keeps the memory that it was declared with

	share, fastShare         float64
	halfLife, fastHalfLife   float64 // hours
	factor                   float64
	byLoad, hour             bool
	cpuLower, cpuUpper       float64
	memoryLower, memoryUpper float64
}

func newLoadline() *loadline {
	l := &loadline{cold: 0.15, restless: 2, coldHours: 6, declaredHours: 1, cpuUpper: 1.5, memoryLower: 0.95, memoryUpper: 1.3}
	l.memory("default")
	l.cpu("calm")
	return l
}

// memory chooses a preset. The default looks at the limit, the others do not.
func (l *loadline) memory(preset string) {
	switch preset {
	case "lean":
		l.margin, l.volatility = 0, 0
	case "equal":
		l.margin, l.volatility = 0, 0.15
	case "safe":
		l.margin, l.volatility = 0.20, 0.15
	default:
		l.margin, l.volatility = ByLimit(), 0.15
	}
}

// cpu chooses a preset. Those that track forget fast: they are for workloads that
// are resized without a restart.
func (l *loadline) cpu(preset string) {
	l.byLoad, l.hour, l.halfLife, l.fastHalfLife, l.cpuLower = true, false, 48, 4, 0.85
	switch preset {
	case "calm-lean":
		l.share, l.fastShare, l.factor = 0.65, 0.50, 1
	case "calm-safe":
		l.share, l.fastShare, l.factor = 0.85, 0.60, 1.05
	case "calm":
		l.share, l.fastShare, l.factor = 0.75, 0.50, 1.05
	}
	if preset[:4] == "calm" {
		return
	}
	l.byLoad, l.hour = false, true
	switch preset {
	case "tracking":
		l.share, l.halfLife, l.fastShare, l.fastHalfLife, l.factor, l.cpuLower = 0.60, 12, 0.90, 1, 1, 0.9
	case "tracking-safe":
		l.share, l.halfLife, l.fastShare, l.fastHalfLife, l.factor, l.cpuLower = 0.70, 12, 0.90, 0.5, 1.10, 0.85
	case "tracking-lean":
		l.share, l.halfLife, l.fastShare, l.fastHalfLife, l.factor, l.cpuLower = 0.50, 6, 0.80, 1, 1, 0.9
	}
}

func (l *loadline) choices() []choice {
	return []choice{
		{name: "memory", options: []string{"default", "lean", "equal", "safe"}, apply: l.memory},
		{name: "cpu", options: []string{"calm", "calm-lean", "calm-safe", "tracking", "tracking-lean", "tracking-safe"}, apply: l.cpu},
	}
}

func (l *loadline) settings() []setting {
	return []setting{
		{"margin", (*float64)(&l.margin), -0.5, 10}, {"volatility", &l.volatility, 0, 10},
		{"cold", &l.cold, 0, 10}, {"restless", &l.restless, 0, 100}, {"cold-hours", &l.coldHours, 0.1, 1000}, {"declared-hours", &l.declaredHours, 0, 1000},
		{"share", &l.share, 0, 1}, {"fast-share", &l.fastShare, 0, 1},
		{"half-life-hours", &l.halfLife, 0.1, 1000}, {"fast-half-life-hours", &l.fastHalfLife, 0.1, 1000}, {"factor", &l.factor, 0.1, 10},
		{"cpu-lower", &l.cpuLower, 0, 1}, {"cpu-upper", &l.cpuUpper, 1, 100},
		{"memory-lower", &l.memoryLower, 0, 1}, {"memory-upper", &l.memoryUpper, 1, 100},
	}
}

func (l *loadline) make() Recipe {
	hours := func(h float64) time.Duration { return time.Duration(h * float64(time.Hour)) }
	shape := sketch.NewLoadShape(resources.CPU, [2]time.Duration{hours(l.halfLife), hours(l.fastHalfLife)}, [2]float64{l.share, l.fastShare}, l.byLoad, l.hour)
	r := Recipe{Needs: sketch.Needs{Peaks: true, LimitRatio: l.margin.FollowsLimit(), Declared: hours(l.declaredHours), Load: [resources.Kinds]*sketch.LoadShape{resources.CPU: shape}}}
	r.Target[resources.CPU] = Chain{Level(shape, 0), OrLevel(shape, 1)}
	if l.hour {
		r.Target[resources.CPU] = append(r.Target[resources.CPU], LastHour(resources.CPU))
	}
	r.Target[resources.CPU] = append(r.Target[resources.CPU], Factor(l.factor), Floor(resources.CPU))
	r.Target[resources.Memory] = Chain{
		TwoPeaks(), VolatileMargin(l.margin, l.volatility, l.cold, l.restless, hours(l.coldHours)),
		LastDay(l.margin, leastLastDay),
	}
	if l.declaredHours > 0 {
		r.Target[resources.Memory] = append(r.Target[resources.Memory], AtFirst(l.declaredHours))
	}
	r.Target[resources.Memory] = append(r.Target[resources.Memory], Floor(resources.Memory))
	around(&r, [resources.Kinds]float64{l.cpuLower, l.memoryLower}, [resources.Kinds]float64{l.cpuUpper, l.memoryUpper})
	return r
}

// leastLastDay is the least margin over the peak of the last day.
const leastLastDay = 0.05
