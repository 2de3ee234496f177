package recipe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

func (l *life) usePressure(a resources.Amount, share float64, length time.Duration) {
	for end := l.at.Add(length); l.at.Before(end); l.at = l.at.Add(time.Minute) {
		l.sketch.Observe(l.at, resources.CPU, a, 0)
		l.sketch.ObservePressure(l.at, a, share)
	}
}

// The published example: 0.5 cores with 20 % pressure need 0.6 cores, as base and as peak. Amounts
// are stored to a thousandth, rounded up.
func TestCruiseKube_PressureCountsAsUsage(t *testing.T) {
	l := live(t, "cruisekube:pod-min-cpu=0,cpu-minutes=10")
	l.usePressure(500, 0.2, time.Hour)
	b := l.bounds()
	require.InDelta(t, 600, float64(b.Target.Value(resources.CPU)), 1)
	require.InDelta(t, 600, float64(b.Lower.Value(resources.CPU)), 1)
	// Half a day later there is no pressure, and the hour is not part of the prediction.
	l.use(resources.CPU, 500, 12*time.Hour)
	b = l.bounds()
	require.InDelta(t, 500, float64(b.Target.Value(resources.CPU)), 1)
	require.InDelta(t, 500, float64(b.Lower.Value(resources.CPU)), 1)
	// The next day the same hour counts again. The base uses only the last minutes.
	l.use(resources.CPU, 500, 11*time.Hour+10*time.Minute)
	b = l.bounds()
	require.InDelta(t, 600, float64(b.Target.Value(resources.CPU)), 1)
	require.Equal(t, resources.Amount(500), b.Lower.Value(resources.CPU), "exactly")
}

func TestCruiseKube_UnknownPressureHasNoEffect(t *testing.T) {
	l := live(t, "cruisekube:base=0.75")
	l.use(resources.CPU, 500, time.Hour)
	require.Nil(t, l.sketch.PressureHours)
	l.sketch.Now = l.at.UnixNano()
	explained := l.recipe.Explain(Input{Sketch: l.sketch, Containers: 1})
	for at, steps := range map[int][]Value{2: explained.Target[resources.CPU], 1: explained.Lower[resources.CPU]} {
		require.Equal(t, "or with the time that work waited for CPU", steps[at].Step)
		require.Equal(t, steps[at-1].Amount, steps[at].Amount)
	}
	pressed := live(t, "loadline:cpu=calm")
	pressed.usePressure(500, 0.5, time.Hour)
	require.Nil(t, pressed.sketch.PressureHours, "a recipe that does not want to know")
}

func TestCruiseKube_OOMKillRaisesToLimitOrUsage(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		request, limit, want resources.Amount
	}{
		{name: "limit above the request", request: 300, limit: 600, want: 600},
		{name: "limit equal to the request", request: 300, limit: 300, want: 300},
		{name: "no limit and usage above the request", request: 200, want: 250},
		{name: "no limit and usage below the request", request: 400, want: 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, "cruisekube")
			l.use(resources.Memory, 250*mib, 30*time.Minute)
			l.sketch.ObserveKill(l.at, tc.request*mib, tc.limit*mib)
			l.use(resources.Memory, 100*mib, 6*24*time.Hour+12*time.Hour)
			b := l.bounds()
			require.InDelta(t, float64(tc.want), l.memory(), 0.3)
			require.Equal(t, b.Target.Value(resources.Memory), b.Lower.Value(resources.Memory), "smaller requests change at once")
			again, err := sketch.Read(l.recipe.Needs, l.sketch.Image(), l.at, 0)
			require.NoError(t, err)
			l.sketch = again
			require.InDelta(t, float64(tc.want), l.memory(), 0.3, "after a restart")
			l.use(resources.Memory, 100*mib, 14*time.Hour)
			require.InDelta(t, 100, l.memory(), 0.3)
		})
	}
}
