package nodes

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

const gib = 1 << 30

// size is the usage, request and limit of a pod from a step on. Amounts are millicores and GiB.
type size struct {
	from                int
	use, request, limit [resources.Kinds]float32
	base, peak          float32 // of CPU; a peak of 0: no sharing
}

func newTrace(steps int, sizes ...size) *Trace {
	c := &Trace{Dataset: "d", Workload: "w", Container: "c"}
	at := -1
	for i := range steps {
		for at+1 < len(sizes) && sizes[at+1].from <= i {
			at++
		}
		s := &sizes[at]
		for k, unit := range [resources.Kinds]float32{1, gib} {
			c.Use[k], c.Request[k] = append(c.Use[k], s.use[k]*unit), append(c.Request[k], s.request[k]*unit)
			c.Limit[k] = append(c.Limit[k], s.limit[k]*unit)
		}
		if sizes[0].peak > 0 {
			k := resources.CPU
			c.Base[k], c.Peak[k], c.Upper[k] = append(c.Base[k], s.base), append(c.Peak[k], s.peak), append(c.Upper[k], s.peak)
		}
	}
	return c
}

func fleetOf(courses ...*Trace) *Fleet {
	f := &Fleet{Step: 5 * time.Minute, Steps: courses[0].Steps()}
	for i, c := range courses {
		f.Pods = append(f.Pods, FleetPod{Trace: i, Length: c.Steps()})
	}
	return f
}

func options(cpu, memory float64) Options {
	return Options{
		Allocatable: [resources.Kinds]float64{cpu, memory * gib}, Kinds: [resources.Kinds]bool{true, true},
		Share: [resources.Kinds]bool{resources.CPU: true},
	}
}

func simulate(t *testing.T, steps int, o Options, rule *sharing.Rule, courses ...*Trace) *simulation {
	t.Helper()
	s := newSimulation(fleetOf(courses...), courses, o, Variant{Rule: rule, Factor: UnitFactors()})
	for i := range steps {
		s.step(i)
		checkConsistent(t, s)
	}
	return s
}

func (s *simulation) cpuRequests() (all []float64) {
	for i := range s.pods {
		all = append(all, math.Round(s.pods[i].request[resources.CPU]*1000)/1000)
	}
	return all
}

func (s *simulation) podNodes() (all []int) {
	for i := range s.pods {
		all = append(all, s.pods[i].node)
	}
	return all
}

// Two pods need 0.8 cores each on a node with one core. Requests of 0.2 and 0.6 cores get 0.25 and
// 0.75 cores.
func TestRun_DividesCPUByRequest(t *testing.T) {
	small, large := size{use: [2]float32{800, 1}, request: [2]float32{200, 1}}, size{use: [2]float32{800, 1}, request: [2]float32{600, 1}}
	courses := []*Trace{newTrace(12, small), newTrace(12, large)}
	score := Run(fleetOf(courses...), courses, options(1000, 10), Variant{Factor: UnitFactors()})
	require.InDelta(t, 1.6, score.Work, 1e-9, "an hour of both")
	require.InDelta(t, 0.6, score.Lost, 1e-9)
	require.InDelta(t, 0.375, score.NotServed(), 1e-9)
	require.InDelta(t, 550.0/800, score.Worst, 1e-9, "of the small one")
	require.Equal(t, 1.0, score.Nodes)
	require.InDelta(t, 1, score.NodeHours, 1e-9)
	require.InDelta(t, 2.0/24, score.PodDays, 1e-9)

	courses[1] = newTrace(12, size{use: [2]float32{100, 1}, request: [2]float32{600, 1}})
	score = Run(fleetOf(courses...), courses, options(1000, 10), Variant{Factor: UnitFactors()})
	require.Zero(t, score.Lost, "what one leaves the other has")

	small.limit[resources.CPU] = 300
	courses[0] = newTrace(12, small)
	score = Run(fleetOf(courses...), courses, options(1000, 10), Variant{Factor: UnitFactors()})
	require.InDelta(t, 500.0/900, score.NotServed(), 1e-9, "a limit holds on a node that is idle, too")
}

func TestDistribute(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		amount               float64
		demand, weight, want []float64
	}{
		{
			name: "more demand than available", amount: 1000,
			demand: []float64{800, 800}, weight: []float64{100, 300}, want: []float64{250, 750},
		},
		{
			name: "unused share goes to the others", amount: 1000,
			demand: []float64{100, 800, 800}, weight: []float64{500, 100, 300}, want: []float64{100, 225, 675},
		},
		{name: "enough for every demand", amount: 1000, demand: []float64{100, 200}, weight: []float64{1, 100}, want: []float64{100, 200}},
		{name: "nothing available", amount: 0, demand: []float64{100}, weight: []float64{1}, want: []float64{0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			divide(tc.amount, tc.demand, tc.weight, nil)
			require.InDeltaSlice(t, tc.want, tc.demand, 1e-9)
		})
	}
}

// 11.5 of 10 GiB are used. The second pod is furthest above its request and is evicted, although
// the third uses the most.
func TestRun_EvictsPodFurthestAboveMemoryRequest(t *testing.T) {
	memory := func(use, request float32) *Trace {
		return newTrace(3, size{use: [2]float32{0, use}, request: [2]float32{100, request}})
	}
	s := simulate(t, 1, options(1000, 10), nil, memory(3, 3), memory(3, 1.5), memory(5.5, 4.5))
	require.Equal(t, []int{0, 1, 0}, s.podNodes())
	require.Equal(t, 1, s.score.Pressure)
	s.step(1)
	require.Equal(t, 1, s.score.Pressure, "there is room for all now")
	require.Zero(t, s.score.Moves)
}

func TestSweep_EqualOOMKills(t *testing.T) {
	limited := size{use: [2]float32{0, 1}, request: [2]float32{100, 1}, limit: [2]float32{0, 1.5}}
	high, again := limited, limited
	high.from, high.use[resources.Memory] = 2, 2
	again.from = 4
	c := newTrace(6, limited, high, again)
	courses := []*Trace{c}
	require.Equal(t, 1, Run(fleetOf(c), courses, options(1000, 10), Variant{Factor: UnitFactors()}).Kills)
	require.Zero(t, Run(fleetOf(c), courses, options(1000, 10), Variant{Factor: [2]float64{1, 2}}).Kills, "limits are scaled with requests")

	out := Sweep(fleetOf(c), courses, options(1000, 10), Variant{}, SweepOptions{Factors: []float64{1}, EqualKills: true})
	require.InDelta(t, math.Pow(1.05, 6), out.MemoryFactor, 1e-9, "the least step with which 1.5 GiB become 2")
	require.Equal(t, 1, out.AsIs.Kills)
	require.Zero(t, out.Points[0].Score.Kills)
	out = Sweep(fleetOf(c), courses, options(1000, 10), Variant{}, SweepOptions{Factors: []float64{1}})
	require.Equal(t, 1.0, out.MemoryFactor)
	require.Equal(t, out.AsIs, out.Points[0].Score)
}

// EqualKills also bounds evictions by the kubelet. Three pods that use 3 GiB of 4 GiB requested
// stay on two nodes of 8 GiB.
func TestSweep_EqualKillsIncludesNodePressureEvictions(t *testing.T) {
	pod := size{use: [2]float32{0, 3}, request: [2]float32{100, 4}}
	courses := []*Trace{newTrace(6, pod), newTrace(6, pod), newTrace(6, pod)}
	out := Sweep(fleetOf(courses...), courses, options(1000, 8), Variant{}, SweepOptions{Factors: []float64{1}, EqualKills: true})
	require.Zero(t, out.Points[0].Score.Pressure)
	require.Equal(t, 2.0, out.Points[0].Score.Nodes)
	require.InDelta(t, math.Pow(1.05, -8), out.MemoryFactor, 1e-9, "2.7 GiB: three of 2.57 would fit on one node")
	pod.use[resources.Memory] = 9
	courses = []*Trace{newTrace(6, pod)}
	out = Sweep(fleetOf(courses...), courses, options(1000, 8), Variant{}, SweepOptions{Factors: []float64{1}, EqualKills: true})
	require.Empty(t, out.Points, "more than a node, whatever is requested")
}

// Three equal pods with base 0.5 and peak 1.4 cores get 0.8 cores each. A fourth starts at its
// peak, then all shrink. The peak of a fifth does not fit, although its share would.
func TestSharing_NewPodStartsAtPeak(t *testing.T) {
	equal := size{use: [2]float32{500, 1}, request: [2]float32{1400, 1}, base: 500, peak: 1400}
	rule := &sharing.Rule{Pooling: sharing.LargestHeadroom}
	pods := func(n int) (all []*Trace) {
		for range n {
			all = append(all, newTrace(300, equal))
		}
		return all
	}
	s := simulate(t, 1, options(4000, 64), rule, pods(3)...)
	require.Equal(t, []float64{800, 800, 800}, s.cpuRequests())
	s = simulate(t, 1, options(4000, 64), rule, pods(4)...)
	require.Equal(t, []float64{725, 725, 725, 725}, s.cpuRequests())
	s = simulate(t, 1, options(4000, 64), rule, pods(5)...)
	require.Equal(t, []int{0, 0, 0, 0, 1}, s.podNodes())
	require.Equal(t, 1400.0, s.cpuRequests()[4])
	s = simulate(t, 1, options(4000, 64), nil, pods(3)...)
	require.Equal(t, []int{0, 0, 1}, s.podNodes(), "without sharing each keeps its peak")
}

// When the base of one pod rises, the other pods shrink first. A share does not move by less than
// the minimum change.
func TestSharing_ResizesSharesInPlace(t *testing.T) {
	rule := &sharing.Rule{Pooling: sharing.LargestHeadroom, EvictAbove: 0.85}
	equal := size{use: [2]float32{500, 1}, request: [2]float32{1400, 1}, base: 500, peak: 1400}
	higher, little := equal, equal
	higher.from, higher.base = 1, 1100
	little.from, little.base = 1, 520
	s := simulate(t, 1, options(4000, 64), rule, newTrace(12, equal), newTrace(12, equal), newTrace(12, equal, higher))
	require.Equal(t, []float64{800, 800, 800}, s.cpuRequests())
	s.step(1)
	checkConsistent(t, s)
	// bases 2100, headrooms 900 + 900 + 300, the largest is 900: 500 + 900 x 900/2100, and 1100 +
	// 900 x 300/2100
	require.InDeltaSlice(t, []float64{885.714, 885.714, 1228.571}, s.cpuRequests(), 0.001)
	require.Equal(t, 3, s.score.Resizes)
	s = simulate(t, 2, options(4000, 64), rule, newTrace(12, equal), newTrace(12, equal), newTrace(12, equal, little))
	require.Equal(t, []float64{800, 800, 800}, s.cpuRequests())
	require.Zero(t, s.score.Resizes)
}

func TestSharing_ShrinksHourlyOrOnArrival(t *testing.T) {
	rule := &sharing.Rule{Pooling: sharing.LargestHeadroom}
	equal := size{use: [2]float32{100, 1}, request: [2]float32{1400, 1}, base: 500, peak: 1400}
	lower, lowest := equal, equal
	lower.from, lower.base = 1, 400
	lowest.from, lowest.base = 2, 100
	higher := equal
	higher.from, higher.base, higher.peak = 2, 1750, 2050
	after := func(steps int, cpu float64, third size) *simulation {
		return simulate(t, steps, options(cpu, 64), rule, newTrace(24, equal, lower, lowest), newTrace(24, equal, lower, lowest), newTrace(24, equal, lower, third))
	}
	at := func(steps int, cpu float64, third size) []float64 { return after(steps, cpu, third).cpuRequests() }
	first := []float64{733.333, 733.333, 733.333}
	require.InDeltaSlice(t, first, at(2, 4000, lowest), 0.001)
	require.InDeltaSlice(t, first, at(3, 4000, lowest), 0.001)
	require.InDeltaSlice(t, first, at(13, 4000, lowest), 0.001)
	require.InDeltaSlice(t, []float64{533.333, 533.333, 533.333}, at(14, 4000, lowest), 0.001)
	// 1300 above the bases, of 1300 + 1300 + 300; growth takes 1151 more than the requested 2200
	require.InDeltaSlice(t, []float64{733.333, 733.333, 1884.483}, at(3, 4000, higher), 0.001, "there is room")
	require.InDeltaSlice(t, first, at(3, 3300, higher), 0.001, "there is not")

	s := after(2, 4000, lowest)
	s.pods[1].awaitsShare = true
	s.step(2)
	require.InDeltaSlice(t, []float64{533.333, 533.333, 533.333}, s.cpuRequests(), 0.001, "one came")
	s = simulate(t, 2, options(4000, 64), rule, newTrace(24, equal, lower), newTrace(24, equal, lower), newTrace(24, equal, lower))
	for i := range s.pods {
		s.pods[i].awaitsShare = true
	}
	s.step(2)
	require.InDeltaSlice(t, first, s.cpuRequests(), 0.001, "their shares are what they have")
	require.Equal(t, 3, s.score.Resizes)
}

// If bases and headroom exceed the node, the published rule evicts a pod. With EvictAbove, an idle
// node keeps its pods, and growth waits for room.
func TestSharing_EvictsWhenHeadroomDoesNotFit(t *testing.T) {
	equal := size{use: [2]float32{300, 1}, request: [2]float32{1000, 1}, base: 500, peak: 1000}
	higher := equal
	higher.from, higher.base, higher.peak = 1, 600, 2000
	courses := []*Trace{newTrace(12, equal), newTrace(12, equal), newTrace(12, equal, higher)}
	s := simulate(t, 2, options(2500, 64), &sharing.Rule{Pooling: sharing.LargestHeadroom}, courses...)
	require.Equal(t, []int{0, 0, 1}, s.podNodes(), "the one with the largest headroom")
	require.Equal(t, []float64{750, 750, 2000}, s.cpuRequests(), "it comes back at its peak, and the others have what it left")
	require.Equal(t, 1, s.score.Leaves)

	s = simulate(t, 2, options(2500, 64), &sharing.Rule{Pooling: sharing.LargestHeadroom, EvictAbove: 0.85}, courses...)
	require.Equal(t, []int{0, 0, 0}, s.podNodes())
	// 900 above the bases of 1600, of 2400: the other pods would get 687.5, which is within the
	// minimum change
	require.InDeltaSlice(t, []float64{666.667, 666.667, 1125}, s.cpuRequests(), 0.001)
	require.Zero(t, s.score.Leaves)
	o := options(2500, 64)
	o.NoMoves = true
	s = simulate(t, 2, o, &sharing.Rule{Pooling: sharing.LargestHeadroom}, courses...)
	require.Equal(t, []int{0, 0, 0}, s.podNodes())
}

func TestSharing_EvictsFromSaturatedNode(t *testing.T) {
	idle := size{use: [2]float32{300, 1}, request: [2]float32{1000, 1}, base: 300, peak: 1000}
	busy := idle
	busy.from, busy.use[resources.CPU] = 1, 900
	courses := []*Trace{newTrace(12, idle, busy), newTrace(12, idle, busy), newTrace(12, idle, busy)}
	rule := &sharing.Rule{Pooling: sharing.LargestHeadroom, EvictAbove: 0.85}
	require.Zero(t, simulate(t, 2, options(3000, 64), rule, courses...).score.Leaves)
	require.Equal(t, 1, simulate(t, 3, options(3000, 64), rule, courses...).score.Leaves)
}

// Three pods that leave in the same round arrive with their peaks. Their new node has room for all
// of them only if it shares on arrival.
func TestSharing_ArrivalsInOneRound(t *testing.T) {
	low := size{use: [2]float32{300, 1}, request: [2]float32{1000, 1}, base: 300, peak: 1000}
	high := low
	high.from, high.base, high.peak = 1, 1000, 1500
	var courses []*Trace
	for range 6 {
		courses = append(courses, newTrace(12, low, high))
	}
	rule, o := &sharing.Rule{Pooling: sharing.LargestHeadroom}, options(4000, 64)
	require.Equal(t, []int{0, 0, 0, 0, 0, 0}, simulate(t, 1, o, rule, courses...).podNodes())
	require.Equal(t, []int{1, 1, 2, 0, 0, 0}, simulate(t, 2, o, rule, courses...).podNodes())
	o.ShareOnArrival = true
	s := simulate(t, 2, o, rule, courses...)
	require.Equal(t, []int{1, 1, 1, 0, 0, 0}, s.podNodes())
	require.Equal(t, 1166.667, s.cpuRequests()[0])
}

// A request that no longer fits moves the pod that grew most. With NoMoves the growth waits.
func TestRun_MovesPodThatOutgrowsNode(t *testing.T) {
	start := size{use: [2]float32{100, 1}, request: [2]float32{300, 1}}
	more, most := start, start
	more.from, more.request[resources.CPU] = 2, 400
	most.from, most.request[resources.CPU] = 2, 500
	courses := []*Trace{newTrace(12, start), newTrace(12, start, more), newTrace(12, start, most)}
	s := simulate(t, 2, options(1000, 64), nil, courses...)
	require.Equal(t, []int{0, 0, 0}, s.podNodes())
	s = simulate(t, 3, options(1000, 64), nil, courses...)
	require.Equal(t, []int{0, 0, 1}, s.podNodes())
	require.Equal(t, []float64{300, 400, 500}, s.cpuRequests())
	require.Equal(t, 1, s.score.Moves)
	require.Equal(t, 1, s.score.Resizes, "the other one grew in place")
	require.Equal(t, 1, s.score.Evictions())

	o := options(1000, 64)
	o.NoMoves = true
	s = simulate(t, 5, o, nil, courses...)
	require.Equal(t, []int{0, 0, 0}, s.podNodes())
	require.Equal(t, []float64{300, 400, 300}, s.cpuRequests())
	require.Zero(t, s.score.Moves)
}

func TestRun_Consolidation(t *testing.T) {
	wide := size{use: [2]float32{100, 1}, request: [2]float32{600, 1}}
	narrow := wide
	narrow.from, narrow.request[resources.CPU] = 6, 300
	courses := []*Trace{newTrace(40, wide, narrow), newTrace(40, wide, narrow)}
	o := options(1000, 64)
	require.Equal(t, []int{0, 1}, simulate(t, 40, o, nil, courses...).podNodes())
	o.PlacementInterval = 2 * time.Hour
	require.Equal(t, []int{0, 1}, simulate(t, 24, o, nil, courses...).podNodes())
	s := simulate(t, 25, o, nil, courses...)
	require.Equal(t, []int{0, 0}, s.podNodes())
	require.Zero(t, s.score.Evictions())
	o.PlacementInterval, o.ConsolidationInterval = 0, time.Hour
	require.Equal(t, []int{0, 1}, simulate(t, 12, o, nil, courses...).podNodes())
	s = simulate(t, 13, o, nil, courses...)
	require.Equal(t, s.podNodes()[0], s.podNodes()[1])
	require.Equal(t, 1, s.score.Consolidated)
	o.NoMoves = true
	require.Equal(t, []int{0, 1}, simulate(t, 40, o, nil, courses...).podNodes())
}

// A consolidator simulates with current shares, but pods restart at their peaks. It adds the node
// again that it saved.
func TestRun_ConsolidationAddsNodeAgain(t *testing.T) {
	before := size{use: [2]float32{50, 1}, request: [2]float32{500, 1}, base: 200, peak: 500}
	after := before
	after.from, after.base, after.peak = 6, 50, 400
	var courses []*Trace
	for range 4 {
		courses = append(courses, newTrace(40, before, after))
	}
	o := options(1000, 64)
	o.ConsolidationInterval = time.Hour
	s := simulate(t, 12, o, &sharing.Rule{Pooling: sharing.LargestHeadroom}, courses...)
	require.Equal(t, []int{0, 0, 1, 1}, s.podNodes())
	require.Equal(t, []float64{225, 225, 225, 225}, s.cpuRequests())
	s = simulate(t, 13, o, &sharing.Rule{Pooling: sharing.LargestHeadroom}, courses...)
	require.Equal(t, 2, s.score.Consolidated)
	require.Equal(t, []int{1, 0, 1, 1}, s.podNodes())
	require.Equal(t, 400.0, s.cpuRequests()[1], "alone on a new node, with its peak")
}

// Pods use 0.5 cores on nodes with one core. Factors that lose too much work are excluded.
func TestSweep_SelectsFactors(t *testing.T) {
	pod := size{use: [2]float32{500, 1}, request: [2]float32{600, 1}}
	courses := []*Trace{newTrace(6, pod), newTrace(6, pod), newTrace(6, pod)}
	factors := func(out Outcome) (all []float64) {
		for _, p := range out.Points {
			all = append(all, p.Factor)
		}
		return all
	}
	sizes := SweepOptions{Factors: []float64{0.3, 0.5, 0.7, 0.9, 1, 2}}
	out := Sweep(fleetOf(courses...), courses, options(1000, 64), Variant{}, sizes)
	require.Equal(t, []float64{0.5, 0.7, 0.9, 1}, factors(out), "three on a node, or two; nothing is missed with more")
	require.Equal(t, 1.0, out.Points[0].Score.Nodes)
	require.InDelta(t, 1.0/3, out.Points[0].Score.NotServed(), 1e-9)
	require.Equal(t, 3.0, out.AsIs.Nodes)
	sizes.Base.Work, sizes.Base.Lost = 1, 0.5
	require.Equal(t, []float64{0.3, 0.5, 0.7, 0.9, 1}, factors(Sweep(fleetOf(courses...), courses, options(1000, 64), Variant{}, sizes)), "the base leaves more undone")

	pod.request[resources.CPU] = 300
	courses = []*Trace{newTrace(6, pod), newTrace(6, pod), newTrace(6, pod)}
	require.Equal(t, []float64{1, 2}, factors(Sweep(fleetOf(courses...), courses, options(1000, 64), Variant{}, SweepOptions{Factors: sizes.Factors})), "more is needed")
	require.Empty(t, Sweep(fleetOf(courses...), courses, options(1000, 64), Variant{}, SweepOptions{}).Points)
}

func TestNodesNeeded_Interpolates(t *testing.T) {
	point := func(notServed, nodes float64) Point {
		return Point{Score: Score{Work: 1, Lost: notServed, Nodes: nodes}}
	}
	points := []Point{point(1e-2, 10), point(1e-4, 30), point(5e-3, 40)}
	require.InDelta(t, 20, InterpolateCount(points, 1e-3), 1e-9, "half of the way in the logarithm")
	require.InDelta(t, 10, InterpolateCount(points, 1e-2), 1e-9)
	require.True(t, math.IsNaN(InterpolateCount(points, 1e-5)), "none comes to so little")
	require.True(t, math.IsNaN(InterpolateCount(points, 0.1)), "nor to so much")
	require.True(t, math.IsNaN(InterpolateCount(nil, 0.1)))
	none := []Point{point(0, 30), point(1e-3, 12)}
	require.InDelta(t, 12+18.0/6, InterpolateCount(none, 1e-4), 1e-9, "nothing at all counts as a part of 1e-9")
}
