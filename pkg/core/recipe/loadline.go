package recipe

import (
	"fmt"
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// loadline is Loadline's own recipe. Memory is the second-highest daily peak of two weeks, and CPU
// a share of the load in a slow and a fast histogram.
type loadline struct {
	margin         FixedMargin // of memory
	followsUsage   bool        // the memory request follows usage, the limit follows the estimate
	volatility     float64     // memory margin per unit of volatility
	cold, restless float64     // margin of a new container: fixed, and per unit of ExcessOverMean
	coldHours      float64     // half-life of this margin
	declaredHours  float64     // how long a new container keeps its declared memory request

	share, fastShare         float64
	halfLife, fastHalfLife   float64 // hours
	factor                   float64
	sustained                float64 // minutes for which usage must have reached a level
	start                    float64 // minutes of a container start, in which usage does not count
	byLoad, hour             bool
	mixed                    bool    // tracking for large containers
	throttling               bool    // include CPU demand hidden by throttling
	large                    float64 // cores from which a container is large
	sharing                  bool    // CPU headroom is shared
	shared                   shared
	cpuLower, cpuUpper       float64
	memoryLower, memoryUpper float64
}

func newLoadline() *loadline {
	l := &loadline{cold: 0.15, restless: 2, coldHours: 6, declaredHours: 1, start: 3, large: 4, shared: newShared(), cpuUpper: 1.5, memoryLower: 0.95, memoryUpper: 1.3}
	l.memory("default")
	l.cpu("calm")
	l.throttling = true
	return l
}

func (l *loadline) memory(preset string) {
	l.followsUsage = preset == "following"
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

// cpu applies a preset. Tracking presets decay fast and suit workloads with in-place resize. mixed
// is calm, but tracking for large containers. shared uses the target of calm in its peak.
func (l *loadline) cpu(preset string) {
	l.sharing = preset == "shared"
	l.byLoad, l.hour, l.mixed, l.halfLife, l.fastHalfLife, l.cpuLower, l.sustained = true, false, preset == "mixed", 48, 4, 0.85, 15
	switch preset {
	case "calm-lean":
		l.share, l.fastShare, l.factor = 0.65, 0.50, 1
	case "calm-safe":
		l.share, l.fastShare, l.factor = 0.85, 0.60, 1.05
	case "calm", "mixed", "shared":
		l.share, l.fastShare, l.factor = 0.75, 0.50, 1.05
	}
	if l.mixed || l.sharing || preset[:4] == "calm" {
		return
	}
	l.byLoad, l.hour, l.sustained = false, true, 0
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
	return append(l.shared.choices(), []choice{
		{name: "memory", options: []string{"default", "lean", "equal", "safe", "following"}, apply: l.memory},
		{name: "throttling", options: []string{"yes", "no"}, apply: func(v string) { l.throttling = v == "yes" }},
		{name: "cpu", options: []string{"calm", "calm-lean", "calm-safe", "tracking", "tracking-lean", "tracking-safe", "mixed", "shared"}, apply: l.cpu},
	}...)
}

func (l *loadline) settings() []setting {
	return append(l.shared.settings(), []setting{
		{"margin", (*float64)(&l.margin), -0.5, 10}, {"volatility", &l.volatility, 0, 10},
		{"cold", &l.cold, 0, 10}, {"restless", &l.restless, 0, 100}, {"cold-hours", &l.coldHours, 0.1, 1000}, {"declared-hours", &l.declaredHours, 0, 1000},
		{"share", &l.share, 0, 1}, {"fast-share", &l.fastShare, 0, 1},
		{"half-life-hours", &l.halfLife, 0.1, 1000}, {"fast-half-life-hours", &l.fastHalfLife, 0.1, 1000}, {"factor", &l.factor, 0.1, 10},
		{"sustained-minutes", &l.sustained, 0, 1000}, {"start-minutes", &l.start, 0, 1000}, {"mixed-cores", &l.large, 0.01, 1e6},
		{"cpu-lower", &l.cpuLower, 0, 1}, {"cpu-upper", &l.cpuUpper, 1, 100},
		{"memory-lower", &l.memoryLower, 0, 1}, {"memory-upper", &l.memoryUpper, 1, 100},
	}...)
}

func hours(h float64) time.Duration { return time.Duration(h * float64(time.Hour)) }

func (l *loadline) shape() *sketch.LoadShape {
	halfLives := [2]time.Duration{hours(l.halfLife), hours(l.fastHalfLife)}
	return sketch.NewLoadShape(resources.CPU, halfLives, [2]float64{l.share, l.fastShare}, l.byLoad, l.hour).Sustained(hours(l.sustained / 60))
}

func (l *loadline) build() Recipe {
	shape := l.shape()
	if l.throttling {
		shape = shape.Throttling()
	}
	r := Recipe{Needs: sketch.Needs{
		Peaks: true, LimitRatio: l.margin.FollowsLimit() || l.followsUsage, Declared: hours(l.declaredHours), Start: hours(l.start / 60),
		Load: [resources.Kinds]*sketch.LoadShape{resources.CPU: shape},
	}}
	r.Target[resources.CPU] = Chain{Level(shape, 0), OrLevel(shape, 1)}
	if l.hour {
		r.Target[resources.CPU] = append(r.Target[resources.CPU], LastHour(resources.CPU))
	}
	r.Target[resources.CPU] = append(r.Target[resources.CPU], Factor(l.factor))
	if l.mixed {
		var tracking loadline
		tracking.cpu("tracking")
		until := stillLargeShare * l.large
		r.Needs.Tracked = sketch.NewTrackedShape(tracking.shape(), 1000*l.large/l.factor, 1000*until/l.factor)
		r.Target[resources.CPU] = append(r.Target[resources.CPU], Tracking(r.Needs.Tracked, l.large, until))
	}
	if l.sharing {
		r.Target[resources.CPU] = l.shared.peak(r.Target[resources.CPU])
	}
	r.Target[resources.CPU] = append(r.Target[resources.CPU], Floor(resources.CPU))
	r.Target[resources.Memory] = Chain{
		TwoPeaks(), VolatileMargin(l.margin, l.volatility, l.cold, l.restless, hours(l.coldHours)),
		LastDay(l.margin, minLastDayMargin),
	}
	if l.declaredHours > 0 {
		r.Target[resources.Memory] = append(r.Target[resources.Memory], DeclaredRequest(l.declaredHours))
	}
	r.Target[resources.Memory] = append(r.Target[resources.Memory], Floor(resources.Memory))
	setDefaultBounds(&r, [resources.Kinds]float64{l.cpuLower, l.memoryLower}, [resources.Kinds]float64{l.cpuUpper, l.memoryUpper})
	if l.followsUsage {
		l.follow(&r)
	}
	if l.sharing {
		l.shared.share(&r)
	}
	return r
}

// Below this share of the threshold a large container is no longer large.
const stillLargeShare = 0.8

// Tracking uses the tracking estimate for large containers. Thresholds are in cores.
func Tracking(shape *sketch.TrackedShape, from, until float64) Step {
	tracked := fmt.Sprintf("tracking, as calm was above %g cores and not below %g since: the highest of %s, %s, and the last hour", from, until, shape.Name(0), shape.Name(1))
	calm := fmt.Sprintf("calm, as that was not above %g cores, or was below %g since", from, until)
	return Step{
		Name: "tracking of large containers",
		Describe: func(s Subject) string {
			if s.Sketch.Tracked.Large() {
				return tracked
			}
			return calm
		},
		Apply: func(s Subject, in float64) float64 {
			t := s.Sketch.Tracked
			if !t.Large() {
				return in
			}
			return max(t.Level(0, s.Sketch.Now), t.Level(1, s.Sketch.Now), t.Hour())
		},
	}
}

const minLastDayMargin = 0.05

// TwoPeaks begins a memory chain with the second-highest daily peak of two weeks or the current
// peak. When a weekly event begins, the same window two weeks ago counts too.
func TwoPeaks() Step {
	return Step{Name: "second-highest daily peak of 14 days, or the running one", Apply: func(s Subject, _ float64) float64 {
		return max(sketch.Base(s.Sketch.Peaks.Weekly()), s.Sketch.Peaks.CurrentPeak())
	}}
}

// Maximum of VolatileMargin, as a fraction.
const maxMargin = 3

// VolatileMargin adds a fixed fraction, more for volatile daily peaks, and more for new containers,
// above all if their peak is far above the mean.
func VolatileMargin(fixed FixedMargin, volatility, cold, restless float64, halfLife time.Duration) Step {
	says := func(s Subject) string {
		return fmt.Sprintf("margin %s + %g x volatility + (%g + %g x restlessness) halved every %gh", fixed.describe(s), volatility, cold, restless, halfLife.Hours())
	}
	return Step{Name: "margin", Describe: says, Apply: func(s Subject, in float64) float64 {
		p, least := s.Sketch.Peaks, fixed.fraction(s)
		young := min(maxMargin, cold+restless*p.ExcessOverMean()) * math.Exp2(-float64(p.Age(s.Sketch.Now))/float64(halfLife))
		margin := least + volatility*p.Volatility(p.Daily()) + young
		return in * (1 + min(max(margin, min(least, 0)), maxMargin))
	}}
}

// DeclaredRequest raises the amount to the declared request while the container is new.
func DeclaredRequest(hours float64) Step {
	return Step{Name: fmt.Sprintf("or declared request in the first %gh", hours), Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Declared())
	}}
}

// LastDay raises the amount to the peak of the last day plus the fixed margin, at least minMargin.
func LastDay(fixed FixedMargin, minMargin float64) Step {
	margin := func(s Subject) float64 { return max(fixed.fraction(s), minMargin) }
	says := func(s Subject) string { return fmt.Sprintf("or highest of the last day + %.3g", margin(s)) }
	return Step{Name: "or highest of the last day", Describe: says, Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Peaks.LastDayPeak()*(1+margin(s)))
	}}
}
