package trail

import (
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/histogram"
)

// LoadShape is what the CPU histograms of containers have in common. It does not
// change once made; make one for a recipe and share it.
type LoadShape struct {
	scheme *histogram.Scheme
	decays [2]*histogram.Decay
	shares [2]float64
	byLoad bool
	hour   bool
	names  [2]string
}

// Buckets of the CPU histograms: the first has two millicores, each further one
// is 5 % larger. What weighs less than a thousandth of a second counts as empty.
const (
	loadFirst, loadRatio, loadMost = 0.002, 1.05, 1000
	loadEpsilon                    = 1e-6
)

// NewLoadShape returns the shape of a slow and a fast histogram that forget half
// in the given times, of each of which a share is of interest. By load a share is
// that of all work, else that of the time. With hour the highest value of the
// last hour counts.
func NewLoadShape(halfLives [2]time.Duration, shares [2]float64, byLoad, hour bool) *LoadShape {
	s := &LoadShape{scheme: histogram.Exponential(loadFirst, loadRatio, loadMost, loadEpsilon), shares: shares, byLoad: byLoad, hour: hour}
	of := map[bool]string{true: "load", false: "time"}[byLoad]
	for i, h := range halfLives {
		s.decays[i] = histogram.NewDecay(h)
		s.names[i] = fmt.Sprintf("%v of the %s, half-life %gh", shares[i], of, h.Hours())
	}
	return s
}

// Name says in words what Level(i) is.
func (s *LoadShape) Name(i int) string { return s.names[i] }

// Load is the CPU use of one container, as two histograms. Make it with NewLoad.
type Load struct {
	shape  *LoadShape
	by     [2]histogram.Histogram
	last   int64         // nanoseconds since 1970 of the last sample; 0 = none
	slots  [slots]uint16 // highest level of each slot, coded; 0 = none
	latest int64         // number of the slot that is open
}

// The last hour is kept in slots of five minutes.
const (
	slots     = 12
	slotWidth = int64(5 * time.Minute)
)

// NewLoad returns an empty one.
func NewLoad(shape *LoadShape) *Load {
	l := &Load{shape: shape}
	for i := range l.by {
		l.by[i] = histogram.New(shape.scheme, shape.decays[i])
	}
	return l
}

// firstWeight is what a sample stands for that has none before it, in seconds.
const firstWeight = 60

// Observe takes a use in millicores. It stands for the time since the sample
// before.
func (l *Load) Observe(at int64, millicores float64) {
	weight := float64(firstWeight)
	if l.last != 0 {
		weight = float64(min(max(at-l.last, 0), longestHold)) / 1e9
	}
	l.last = max(l.last, at)
	cores := millicores / 1000
	if l.shape.byLoad {
		// In a histogram in which samples weigh what their bucket ends at, a share of
		// the weight is one of the load.
		next := min(l.shape.scheme.Find(cores)+1, l.shape.scheme.Buckets()-1)
		weight *= l.shape.scheme.Start(next)
	}
	for i := range l.by {
		l.by[i].AddAt(cores, weight, at)
	}
	if l.shape.hour {
		l.remember(at)
	}
}

// remember keeps the level of a moment for an hour.
func (l *Load) remember(at int64) {
	number := at / slotWidth
	if number-l.latest >= slots {
		clear(l.slots[:])
		l.latest = number
	}
	for l.latest < number {
		l.latest++
		l.slots[l.latest%slots] = 0
	}
	slot := &l.slots[l.latest%slots]
	*slot = max(*slot, encode(max(l.Level(0), l.Level(1))*1000))
}

// Level returns the share of interest of the slow (0) or the fast (1) histogram,
// in millicores.
func (l *Load) Level(i int) float64 { return l.by[i].Quantile(l.shape.shares[i]) * 1000 }

// Hour returns the highest level of the last hour in millicores, 0 if that is not
// kept.
func (l *Load) Hour() float64 {
	code := uint16(0)
	for _, c := range l.slots {
		code = max(code, c)
	}
	return decode(code) / 1000
}
