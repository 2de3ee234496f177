package nodes

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

func checkConsistent(t require.TestingT, s *simulation) {
	seen := make([]int, len(s.pods))
	for n := range s.nodes {
		var sum [resources.Kinds]float64
		for _, i := range s.nodes[n].pods {
			seen[i]++
			require.Equal(t, n, s.pods[i].node)
			for k := range sum {
				sum[k] += s.pods[i].request[k]
			}
		}
		for k, most := range s.options.Allocatable {
			require.InEpsilon(t, 1+sum[k], 1+s.nodes[n].sum[k], 1e-9)
			require.LessOrEqual(t, sum[k], most*(1+1e-8))
		}
	}
	for i := range seen {
		require.Equal(t, 1, seen[i], "nodes of pod %d", i)
	}
}

func drawTrace(t *rapid.T, steps int) *Trace {
	amount := func(most int) float32 { return float32(rapid.IntRange(1, most).Draw(t, "amount")) }
	var sizes []size
	for from := 0; from < steps; from += rapid.IntRange(1, 20).Draw(t, "for") {
		base := amount(600)
		sizes = append(sizes, size{
			from: from, use: [2]float32{amount(1500), amount(10)}, request: [2]float32{amount(1200), amount(10)}, limit: [2]float32{0, amount(20)},
			base: base, peak: base + amount(800) - 200,
		})
	}
	return newTrace(steps, sizes...)
}

func TestRun_Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const steps = 60
		var courses []*Trace
		for range rapid.IntRange(1, 12).Draw(t, "pods") {
			courses = append(courses, drawTrace(t, steps))
		}
		o := options(1000, 12)
		o.PlacementInterval, o.ConsolidationInterval = rapid.SampledFrom([]time.Duration{0, 2 * time.Hour}).Draw(t, "placing"), rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "consolidate")
		o.NoMoves = rapid.Bool().Draw(t, "stay")
		o.Share[resources.Memory] = rapid.Bool().Draw(t, "memory")
		v := Variant{Factor: [2]float64{rapid.Float64Range(0.2, 2).Draw(t, "factor"), 1}}
		if rapid.Bool().Draw(t, "shares") {
			v.Rule = &sharing.Rule{Pooling: rapid.SampledFrom([]sharing.Pooling{sharing.LargestHeadroom, sharing.RootSumSquares}).Draw(t, "pooling"), EvictAbove: rapid.SampledFrom([]float64{0, 0.85}).Draw(t, "leave at")}
		}
		f := fleetOf(courses...)
		s := newSimulation(f, courses, o, v)
		for i := range steps {
			s.step(i)
			checkConsistent(t, s)
		}
		score := s.finish()
		require.GreaterOrEqual(t, score.Lost, 0.0)
		require.LessOrEqual(t, score.Lost, score.Work*(1+1e-9))
		require.Equal(t, score, Run(f, courses, o, v), "equal input, equal result")
	})
}

// No pod gets more than its demand, nothing remains while demand is unmet, and a pod with unmet
// demand gets at least its weighted share.
func TestDistribute_IsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "pods")
		numbers := func(what string) []float64 {
			return rapid.SliceOfN(rapid.Float64Range(1, 1000), n, n).Draw(t, what)
		}
		want, weight, amount := numbers("want"), numbers("weight"), rapid.Float64Range(0, 3000).Draw(t, "amount")
		gets := slices.Clone(want)
		divide(amount, gets, weight, nil)
		given, wanted := 0.0, 0.0
		for i := range gets {
			given, wanted = given+gets[i], wanted+want[i]
			require.LessOrEqual(t, gets[i], want[i])
			for j := range gets {
				if gets[i] < want[i]-1e-6 {
					require.LessOrEqual(t, gets[j]/weight[j], gets[i]/weight[i]*(1+1e-6)+1e-9)
				}
			}
		}
		require.InDelta(t, min(amount, wanted), given, 1e-6)
	})
}
