package fleet

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/backtest/score"
)

func TestLowestCurve(t *testing.T) {
	points := [][2]float64{{3, 20}, {1, 100}, {2, 70}, {2, 40}, {2.5, 90}}
	for risk, want := range map[float64]float64{1: 100, 1.5: 70, 2: 40, 2.5: 30, 3: 20} {
		require.InDelta(t, want, lowest(points, risk), 1e-9, risk)
	}
	require.True(t, math.IsNaN(lowest(points, 0.9)), "there is nothing as careful")
	require.True(t, math.IsNaN(lowest(points, 3.1)))
	require.True(t, math.IsNaN(lowest(nil, 1)))
}

// A candidate that is a tenth cheaper than what it is compared with saves a tenth, in
// every draw.
func TestSavingAtEqualRisk(t *testing.T) {
	var results []score.Result
	for c := range 20 {
		add := func(candidate string, request, starved float64) {
			r := score.Result{Candidate: candidate, Workload: fmt.Sprint(c), Kind: amount.CPU}
			size := request * float64(c+1)
			r.Scored = score.Tally{Seconds: 1, Days: 1, Dates: 1, Reserved: size, Over: size / 2, Used: size, StarvedWork: starved * size}
			results = append(results, r)
		}
		add("careful", 1000, 0.01)
		add("bold", 400, 0.04)
		add("ours", 630, 0.02) // half-way between them, in the logarithm, are 700
	}
	f, ok := AtEqualRisk(results, "ours", []string{"careful", "bold"}, Plane{amount.CPU, Reserved, "starved_work_mean"})
	require.True(t, ok)
	for _, v := range []float64{f.Value, f.Low, f.High} {
		require.InDelta(t, 0.1, v, 1e-9)
	}
	_, ok = AtEqualRisk(results, "ours", []string{"careful"}, Plane{amount.CPU, Reserved, "starved_work_mean"})
	require.False(t, ok)
	_, ok = AtEqualRisk(results, "ours", []string{"nobody"}, Plane{amount.CPU, "slack_mean", "starved_work"})
	require.False(t, ok)
}
