package cookbook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/estimate"
)

// press is use of which work waited for a share of the time.
func (l *life) press(a amount.Amount, share float64, length time.Duration) {
	for end := l.at.Add(length); l.at.Before(end); l.at = l.at.Add(time.Minute) {
		l.trail.Observe(l.at, amount.CPU, a, 0)
		l.trail.Waited(l.at, a, share)
	}
}

// The published example: 0.5 cores of which work waited for 20 % of the time are 0.6
// cores, as base and as peak. Kept to a thousandth, rounded up.
func TestWaitingForCPUCountsAsUse(t *testing.T) {
	l := live(t, "cruisekube:pod-min-cpu=0,cpu-minutes=10")
	l.press(500, 0.2, time.Hour)
	b := l.bounds()
	require.InDelta(t, 600, float64(b.Target.Value(amount.CPU)), 1)
	require.InDelta(t, 600, float64(b.Lower.Value(amount.CPU)), 1)
	// Half a day later it is not pressed any more, and nobody looks at that hour.
	l.use(amount.CPU, 500, 12*time.Hour)
	b = l.bounds()
	require.InDelta(t, 500, float64(b.Target.Value(amount.CPU)), 1)
	require.InDelta(t, 500, float64(b.Lower.Value(amount.CPU)), 1)
	// The next day at this hour it is remembered; the base has only the last minutes.
	l.use(amount.CPU, 500, 11*time.Hour+10*time.Minute)
	b = l.bounds()
	require.InDelta(t, 600, float64(b.Target.Value(amount.CPU)), 1)
	require.InDelta(t, 500, float64(b.Lower.Value(amount.CPU)), 1)
}

// Without pressure the step is there and changes nothing.
func TestUnknownWaitingChangesNothing(t *testing.T) {
	l := live(t, "cruisekube:base=0.75")
	l.use(amount.CPU, 500, time.Hour)
	require.Nil(t, l.trail.Pressed)
	l.trail.Now = l.at.UnixNano()
	explained := l.recipe.Explain(estimate.Subject{Trail: l.trail, Minimum: l.recipe.Minimum})
	for _, steps := range [][]estimate.Value{explained.Target[amount.CPU], explained.Lower[amount.CPU]} {
		require.Equal(t, "or with the time that work waited for CPU", steps[1].Step)
		require.Equal(t, steps[0].Amount, steps[1].Amount)
	}
	pressed := live(t, "loadline:cpu=calm")
	pressed.press(500, 0.5, time.Hour)
	require.Nil(t, pressed.trail.Pressed, "a recipe that does not want to know")
}
