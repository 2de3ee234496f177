package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestLower_InterpolatesCurve(t *testing.T) {
	points := paretoFront([][2]float64{{3, 20}, {1, 100}, {2, 70}, {2, 40}, {2.5, 90}})
	for risk, cost := range map[float64]float64{1: 100, 1.5: 70, 2: 40, 2.5: 30, 3: 20} {
		require.InDelta(t, cost, costAt(points, risk), 1e-9, risk)
		require.InDelta(t, risk, riskAt(points, cost), 1e-9, cost)
	}
	for _, nothing := range []float64{costAt(points, 0.9), costAt(points, 3.1), costAt(nil, 1), riskAt(points, 19), riskAt(points, 101), riskAt(nil, 1)} {
		require.True(t, math.IsNaN(nothing))
	}
}

// A candidate that is a tenth cheaper at equal risk saves a tenth in every bootstrap draw.
func TestAtEqualRisk_ReturnsSaving(t *testing.T) {
	var results []backtest.Result
	for c := range 20 {
		add := func(candidate string, request, starved float64) {
			r := backtest.Result{Candidate: candidate, Workload: fmt.Sprint(c), Kind: resources.CPU}
			size := request * float64(c+1)
			r.Scored = backtest.Tally{Seconds: 1, Days: 1, Dates: 1, Reserved: size, Over: size / 2, Used: size, StarvedWork: starved * size}
			results = append(results, r)
		}
		add("careful", 1000, 0.01)
		add("bold", 400, 0.04)
		add("ours", 630, 0.02) // the logarithmic midpoint between them is 700
	}
	f, ok := atEqualRisk(results, "ours", []string{"careful", "bold"}, axes{resources.CPU, reserved, "starved_work_mean"})
	require.True(t, ok)
	for _, v := range []float64{f.Value, f.Low, f.High} {
		require.InDelta(t, 0.1, v, 1e-9)
	}
	fleet, ok := atEqualRisk(results, "ours", []string{"careful", "bold"}, axes{resources.CPU, reservedFleet, "starved_work_mean"})
	require.True(t, ok)
	require.InDelta(t, 0.1, fleet.Value, 1e-9)
	_, ok = atEqualRisk(results, "ours", []string{"careful"}, axes{resources.CPU, reserved, "starved_work_mean"})
	require.False(t, ok)
	_, ok = atEqualRisk(results, "ours", []string{"nobody"}, axes{resources.CPU, "slack_mean", "starved_work"})
	require.False(t, ok)
}

func TestAtEqualCost_ReturnsRiskReduction(t *testing.T) {
	var results []backtest.Result
	for c := range 20 {
		for candidate, is := range map[string][2]float64{"careful": {1000, 0.01}, "bold": {400, 0.04}, "base": {700, 0.05}} {
			r := backtest.Result{Candidate: candidate, Workload: fmt.Sprint(c), Kind: resources.CPU}
			r.Scored = backtest.Tally{Seconds: 1, Days: 1, Dates: 1, Reserved: is[0], Over: is[0] / 2, Used: 100, StarvedWork: 100 * is[1]}
			results = append(results, r)
		}
	}
	f, ok := atEqualCost(results, "base", []string{"careful", "bold"}, axes{resources.CPU, reservedFleet, "starved_work_mean"})
	require.True(t, ok)
	for _, v := range []float64{f.Value, f.Low, f.High} {
		require.InDelta(t, 0.6, v, 1e-9, "0.02 in place of 0.05")
	}
	_, ok = atEqualCost(results, "base", []string{"careful"}, axes{resources.CPU, reservedFleet, "starved_work_mean"})
	require.False(t, ok)
	f, ok = relativeSaving(results, "careful", "base", resources.CPU, "starved_work_mean")
	require.True(t, ok)
	require.InDelta(t, 0.8, f.Value, 1e-9)
}
