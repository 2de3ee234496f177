package nodes

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Score is what a fleet needed and went without.
type Score struct {
	Nodes     float64 // mean number of nodes
	NodeHours float64
	PodDays   float64
	Work      float64 // CPU that pods wanted, in core-hours
	Lost      float64 // of that, what was not served, for want of CPU or by a limit
	Worst     float64 // largest part of its own work that was not served to a pod, 0 to 1

	Kills        int // OOM kills at limits
	Pressure     int // evictions by kubelets whose memory ran out
	Moves        int // pods that moved because their request no longer fitted in place
	Leaves       int // pods that left because their node could not share with them any more
	Consolidated int // pods that moved because their node was emptied
	Resizes      int // in place, of one request or both
}

// NotServed returns the part of the CPU work that was not served, 0 to 1.
func (s *Score) NotServed() float64 {
	if s.Work == 0 {
		return 0
	}
	return s.Lost / s.Work
}

// ByMemory returns how many pods lost their work for want of memory: to OOM kills at limits and to kubelets.
func (s *Score) ByMemory() int { return s.Kills + s.Pressure }

// Evictions returns how many pods had to start anew, whyever, but for placings from scratch.
func (s *Score) Evictions() int { return s.Pressure + s.Moves + s.Leaves + s.Consolidated }

// PerPodDay returns how often something happened to a pod in a day.
func (s *Score) PerPodDay(count int) float64 {
	if s.PodDays == 0 {
		return 0
	}
	return float64(count) / s.PodDays
}

// Point is a score with requests of another size.
type Point struct {
	Factor float64 // of CPU requests
	Score  Score
}

// leastRisk stands for none at all, which has no logarithm.
const leastRisk = 1e-9

// Needed returns how many nodes it takes where a part of the work, more than 0, is not served: between two points
// straight in the logarithm of that part. Not a number where it is less than that of all points, or more.
func Needed(points []Point, notServed float64) float64 {
	var front [][2]float64
	for i := range points {
		s := &points[i].Score
		front = append(front, [2]float64{math.Log(max(s.NotServed(), leastRisk)), s.Nodes})
	}
	slices.SortFunc(front, func(a, b [2]float64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	kept := front[:0]
	for _, p := range front { // one that needs more nodes and leaves more undone counts for nothing
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

// Outcome is what one variant of a method came to.
type Outcome struct {
	AsIs         Score   // as it is recommended
	MemoryFactor float64 // of memory requests and limits at the points
	Points       []Point
}

// Sizes says with requests of which sizes a method is run beside those that it recommends.
type Sizes struct {
	Factors    []float64 // of CPU requests, in rising order; empty = there are no others
	Base       Score     // of the method that others are compared with, as it recommends
	EqualKills bool      // memory requests and limits are as small as they may be without more lost to memory than under the base; else as recommended
}

// Sweep lets a fleet run as a method recommends, and with requests of other sizes. The factor of the variant does not
// matter. Factors are left out that lead beyond what is compared: the levels, and what the base leaves undone. A method
// that loses more to memory than the base whatever its requests and limits, within reason, has no points.
func Sweep(f *Fleet, courses []*Course, o Options, v Variant, sizes Sizes) Outcome {
	v.Factor = AsIs()
	out := Outcome{AsIs: Run(f, courses, o, v), MemoryFactor: 1}
	if len(sizes.Factors) == 0 {
		return out
	}
	if sizes.EqualKills && o.Kinds[resources.Memory] {
		v.Factor[resources.CPU] = sizes.Factors[0] // nodes are fullest of memory there
		out.MemoryFactor = memoryFactor(f, courses, o, v, sizes.Base.ByMemory())
	}
	if math.IsNaN(out.MemoryFactor) {
		return out
	}
	point := func(factor float64) Point {
		v.Factor = [resources.Kinds]float64{resources.CPU: factor, resources.Memory: out.MemoryFactor}
		if v.Factor == AsIs() {
			return Point{factor, out.AsIs}
		}
		return Point{factor, Run(f, courses, o, v)}
	}
	levels := append(Levels(), max(sizes.Base.NotServed(), leastRisk))
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

// Memory requests and limits are tried from a quarter to four times what is recommended, in steps of a factor.
const (
	memorySteps = 28
	memoryStep  = 1.05
)

// memoryFactor returns the least factor of memory requests and limits with which memory kills
// and evicts at most so many times; not a number if there is none.
func memoryFactor(f *Fleet, courses []*Course, o Options, v Variant, most int) float64 {
	low, high := -memorySteps, memorySteps+1
	for low < high {
		middle := low + (high-low)/2
		v.Factor[resources.Memory] = math.Pow(memoryStep, float64(middle))
		score := Run(f, courses, o, v)
		if score.ByMemory() <= most {
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
