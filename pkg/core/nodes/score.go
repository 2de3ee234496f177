package nodes

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Score holds the nodes that a fleet required, and its unserved work and disruptions.
type Score struct {
	Nodes     float64 // mean number of nodes
	NodeHours float64
	PodDays   float64
	Work      float64 // CPU demand in core-hours
	Lost      float64 // unserved part of Work, due to CPU contention or limits
	Worst     float64 // highest unserved share of a pod's own work, 0 to 1

	Kills        int // OOM kills at limits
	Pressure     int // node-pressure evictions for memory
	Moves        int // pods moved because their request no longer fit in place
	Leaves       int // pods moved because sharing left no room for them
	Consolidated int // pods moved by consolidation
	Resizes      int // in place, of one or both requests
}

// NotServed returns the unserved share of the CPU work, 0 to 1.
func (s *Score) NotServed() float64 {
	if s.Work == 0 {
		return 0
	}
	return s.Lost / s.Work
}

// MemoryFailures returns the number of OOM kills at limits and node-pressure evictions.
func (s *Score) MemoryFailures() int { return s.Kills + s.Pressure }

// Evictions returns the number of pod restarts, except by placements from scratch.
func (s *Score) Evictions() int { return s.Pressure + s.Moves + s.Leaves + s.Consolidated }

// PerPodDay returns a count per pod-day.
func (s *Score) PerPodDay(count int) float64 {
	if s.PodDays == 0 {
		return 0
	}
	return float64(count) / s.PodDays
}

// Point is a score with scaled requests.
type Point struct {
	Factor float64 // of CPU requests
	Score  Score
}

// minRisk replaces a risk of 0, which has no logarithm.
const minRisk = 1e-9

// InterpolateCount returns the number of nodes at an unserved share of work above 0, linear in the
// logarithm of the share. It returns NaN outside the range of the points.
func InterpolateCount(points []Point, notServed float64) float64 {
	var front [][2]float64
	for i := range points {
		s := &points[i].Score
		front = append(front, [2]float64{math.Log(max(s.NotServed(), minRisk)), s.Nodes})
	}
	slices.SortFunc(front, func(a, b [2]float64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	kept := front[:0]
	for _, p := range front { // skip points that need more nodes and leave more work unserved
		if len(kept) == 0 || p[1] < kept[len(kept)-1][1] {
			kept = append(kept, p)
		}
	}
	at, want := 0, math.Log(notServed)
	for at < len(kept) && kept[at][0] < want {
		at++
	}
	switch {
	case at < len(kept) && kept[at][0] == want:
		return kept[at][1]
	case at == 0 || at == len(kept):
		return math.NaN()
	}
	a, b := kept[at-1], kept[at]
	return a[1] + (b[1]-a[1])*(want-a[0])/(b[0]-a[0])
}

// Outcome is the result of one variant of a method.
type Outcome struct {
	AsIs         Score   // with the recommended requests
	MemoryFactor float64 // of memory requests and limits at the points
	Points       []Point
}

// SweepOptions selects the scaled requests with which a method is simulated.
type SweepOptions struct {
	Factors    []float64 // of CPU requests, ascending, empty = no scaled requests
	Base       Score     // of the method for comparison, with its recommended requests
	EqualKills bool      // lowest memory requests with no more memory failures than Base
}

// Sweep simulates a fleet with the recommended and with scaled requests. It ignores the factor of
// the variant. It omits factors beyond the compared levels and the unserved work of the base. A
// method with more memory failures than the base at all factors has no points.
func Sweep(f *Fleet, courses []*Trace, o Options, v Variant, sizes SweepOptions) Outcome {
	v.Factor = UnitFactors()
	out := Outcome{AsIs: Run(f, courses, o, v), MemoryFactor: 1}
	if len(sizes.Factors) == 0 {
		return out
	}
	if sizes.EqualKills && o.Kinds[resources.Memory] {
		v.Factor[resources.CPU] = sizes.Factors[0] // nodes are fullest of memory at this factor
		out.MemoryFactor = memoryFactor(f, courses, o, v, sizes.Base.MemoryFailures())
	}
	if math.IsNaN(out.MemoryFactor) {
		return out
	}
	point := func(factor float64) Point {
		v.Factor = [resources.Kinds]float64{resources.CPU: factor, resources.Memory: out.MemoryFactor}
		if v.Factor == UnitFactors() {
			return Point{factor, out.AsIs}
		}
		return Point{factor, Run(f, courses, o, v)}
	}
	levels := append(Levels(), max(sizes.Base.NotServed(), minRisk))
	least, most := slices.Min(levels), slices.Max(levels)
	middle, _ := slices.BinarySearch(sizes.Factors, 1)
	middle = min(middle, len(sizes.Factors)-1)
	for i := middle; i >= 0; i-- {
		out.Points = append(out.Points, point(sizes.Factors[i]))
		if out.Points[len(out.Points)-1].Score.NotServed() > most {
			break
		}
	}
	slices.Reverse(out.Points)
	for i := middle + 1; i < len(sizes.Factors) && out.Points[len(out.Points)-1].Score.NotServed() > least; i++ {
		out.Points = append(out.Points, point(sizes.Factors[i]))
	}
	return out
}

// Memory requests and limits are tried from a quarter to four times the recommendation.
const (
	memorySteps = 28
	memoryStep  = 1.05
)

// memoryFactor returns the lowest memory factor with at most maxFailures failures, NaN if there is none.
func memoryFactor(f *Fleet, courses []*Trace, o Options, v Variant, maxFailures int) float64 {
	low, high := -memorySteps, memorySteps+1
	for low < high {
		middle := low + (high-low)/2
		v.Factor[resources.Memory] = math.Pow(memoryStep, float64(middle))
		score := Run(f, courses, o, v)
		if score.MemoryFailures() <= maxFailures {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if low > memorySteps {
		return math.NaN()
	}
	return math.Pow(memoryStep, float64(low))
}
