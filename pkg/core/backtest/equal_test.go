package backtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestLowestCurve(t *testing.T) {
	points := lower([][2]float64{{3, 20}, {1, 100}, {2, 70}, {2, 40}, {2.5, 90}})
	for risk, cost := range map[float64]float64{1: 100, 1.5: 70, 2: 40, 2.5: 30, 3: 20} {
		require.InDelta(t, cost, costAt(points, risk), 1e-9, risk)
		require.InDelta(t, risk, riskAt(points, cost), 1e-9, cost)
	}
	for _, nothing := range []float64{costAt(points, 0.9), costAt(points, 3.1), costAt(nil, 1), riskAt(points, 19), riskAt(points, 101), riskAt(nil, 1)} {
		require.True(t, math.IsNaN(nothing))
	}
}

// A candidate that is a tenth cheaper than what it is compared with saves a tenth, in
// every draw.
func TestSavingAtEqualRisk(t *testing.T) {
	var results []Result
	for c := range 20 {
		add := func(candidate string, request, starved float64) {
			r := Result{Candidate: candidate, Workload: fmt.Sprint(c), Kind: resources.CPU}
			size := request * float64(c+1)
			r.Scored = Tally{Seconds: 1, Days: 1, Dates: 1, Reserved: size, Over: size / 2, Used: size, StarvedWork: starved * size}
			results = append(results, r)
		}
		add("careful", 1000, 0.01)
		add("bold", 400, 0.04)
		add("ours", 630, 0.02) // half-way between them, in the logarithm, are 700
	}
	f, ok := AtEqualRisk(results, "ours", []string{"careful", "bold"}, Plane{resources.CPU, Reserved, "starved_work_mean"})
	require.True(t, ok)
	for _, v := range []float64{f.Value, f.Low, f.High} {
		require.InDelta(t, 0.1, v, 1e-9)
	}
	fleet, ok := AtEqualRisk(results, "ours", []string{"careful", "bold"}, Plane{resources.CPU, ReservedFleet, "starved_work_mean"})
	require.True(t, ok)
	require.InDelta(t, 0.1, fleet.Value, 1e-9)
	_, ok = AtEqualRisk(results, "ours", []string{"careful"}, Plane{resources.CPU, Reserved, "starved_work_mean"})
	require.False(t, ok)
	_, ok = AtEqualRisk(results, "ours", []string{"nobody"}, Plane{resources.CPU, "slack_mean", "starved_work"})
	require.False(t, ok)
}

func TestRiskAtEqualCost(t *testing.T) {
	var results []Result
	for c := range 20 {
		for candidate, is := range map[string][2]float64{"careful": {1000, 0.01}, "bold": {400, 0.04}, "base": {700, 0.05}} {
			r := Result{Candidate: candidate, Workload: fmt.Sprint(c), Kind: resources.CPU}
			r.Scored = Tally{Seconds: 1, Days: 1, Dates: 1, Reserved: is[0], Over: is[0] / 2, Used: 100, StarvedWork: 100 * is[1]}
			results = append(results, r)
		}
	}
	f, ok := AtEqualCost(results, "base", []string{"careful", "bold"}, Plane{resources.CPU, ReservedFleet, "starved_work_mean"})
	require.True(t, ok)
	for _, v := range []float64{f.Value, f.Low, f.High} {
		require.InDelta(t, 0.6, v, 1e-9, "0.02 in place of 0.05")
	}
	_, ok = AtEqualCost(results, "base", []string{"careful"}, Plane{resources.CPU, ReservedFleet, "starved_work_mean"})
	require.False(t, ok)
	f, ok = Less(results, "careful", "base", resources.CPU, "starved_work_mean")
	require.True(t, ok)
	require.InDelta(t, 0.8, f.Value, 1e-9)
}

// Where a draw of containers has nothing to be compared with, the interval is that of
// the others, unless too many are like that.
func TestDrawsWithoutAValue(t *testing.T) {
	n := 0
	some := func(every int) func([]int) float64 {
		return func([]int) float64 {
			if n++; n%every == 0 {
				return math.NaN()
			}
			return 5
		}
	}
	f := interval("x", 3, some(100))
	require.Equal(t, []float64{5, 5}, []float64{f.Low, f.High})
	few, m := 0, 0 // ten of a thousand lie outside: of the others, fifteen less are cut at each end
	f = interval("x", 3, func([]int) float64 {
		if few++; few > 1 && few <= 11 {
			return math.NaN()
		}
		m++
		return float64(m)
	})
	require.Equal(t, []float64{17, 976}, []float64{f.Low, f.High})
	f = interval("x", 3, some(10))
	require.True(t, math.IsNaN(f.Low) && math.IsNaN(f.High))
}
