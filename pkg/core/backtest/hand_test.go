package backtest

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// These tests are the cases of the specification that can be verified by hand.

var start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func defaultOptions() Options {
	return Options{
		Setup:  func(k resources.Kind) replay.Setup { return replay.DefaultSetup(k) },
		WarmUp: WarmUp,
		Kinds:  []resources.Kind{resources.CPU, resources.Memory},
	}
}

// recording has one sample a minute of one resource.
func recording(length time.Duration, k resources.Kind, use func(minute int) float64) *replay.Recording {
	r := &replay.Recording{Dataset: "made", Workload: "w", Container: "c"}
	for m := range int(length / time.Minute) {
		r.At = append(r.At, start.Add(time.Duration(m)*time.Minute).UnixNano())
		both := [resources.Kinds]float64{math.NaN(), math.NaN()}
		both[k] = use(m)
		for kind := range both {
			r.Use[kind] = append(r.Use[kind], both[kind])
		}
	}
	return r
}

func always(use float64) func(int) float64 { return func(int) float64 { return use } }

func fixed(t *testing.T, r *replay.Recording, k resources.Kind, request resources.Amount, change func(*replay.Setup)) Result {
	t.Helper()
	return scored(t, r, k, request, replay.Fixed{}, change)
}

func scored(t *testing.T, r *replay.Recording, k resources.Kind, request resources.Amount, a replay.Advisor, change func(*replay.Setup)) Result {
	t.Helper()
	setup := replay.DefaultSetup(k)
	setup.Initial = setup.Initial.With(k, request)
	if change != nil {
		change(&setup)
	}
	require.NoError(t, setup.Validate())
	options := Options{Setup: func(resources.Kind) replay.Setup { return setup }, Kinds: []resources.Kind{k}}
	results := Run(r, options, Candidate{"it", func(Case) replay.Advisor { return a }})
	require.Len(t, results, 1)
	return results[0]
}

const (
	coreHour = 1000 * 3600 // millicore seconds
	gib      = 1 << 30
)

func TestScore_ConstantUsage(t *testing.T) {
	s := fixed(t, recording(24*time.Hour, resources.CPU, always(500)), resources.CPU, 1000, nil).Scored
	require.InDelta(t, 500, s.SlackAbsolute(), 1e-9)
	require.InDelta(t, 0.5, s.Slack(), 1e-12)
	require.InDelta(t, 12, s.Over/coreHour, 1e-9)
	require.InDelta(t, 1, s.Days, 1e-12)
	require.Zero(t, s.Starved)
	require.Equal(t, 1, s.Dates)
}

func TestScore_RequestBelowUsage(t *testing.T) {
	s := fixed(t, recording(24*time.Hour, resources.CPU, always(1000)), resources.CPU, 500, nil).Scored
	require.Zero(t, s.Slack())
	require.InDelta(t, 1, s.StarvedShare(), 1e-12)
	require.InDelta(t, 12, s.StarvedWork/coreHour, 1e-9)
	require.InDelta(t, 86400, s.Longest, 1e-9)
	require.Equal(t, 1, s.StarvedDays)
	require.Zero(t, s.Throttled, "without a limit nothing is throttled")
}

func TestScore_SquareWave(t *testing.T) {
	wave := func(m int) float64 { return float64(m / 30 % 2 * 1000) } // half an hour each
	s := fixed(t, recording(24*time.Hour, resources.CPU, wave), resources.CPU, 1000, nil).Scored
	require.InDelta(t, 0.5, s.Slack(), 1e-12)
	require.Zero(t, s.PeakSlack(), "each hour holds a high phase")
	slow := func(m int) float64 { return float64(m / 120 % 2 * 1000) }
	s = fixed(t, recording(24*time.Hour, resources.CPU, slow), resources.CPU, 1000, nil).Scored
	require.InDelta(t, 0.5, s.PeakSlack(), 1e-12, "half of the hours hold none")
}

func TestOOMKill_OneSpikeIsOneKill(t *testing.T) {
	spike := func(m int) float64 { return gib * float64(1+min(m, 700)/700*(1-min(abs(m-700), 1))) }
	r := fixed(t, recording(24*time.Hour, resources.Memory, spike), resources.Memory, gib*3/2, func(s *replay.Setup) {
		s.Limits[resources.Memory] = replay.Limit{Policy: replay.Proportional, Factor: 1}
	})
	require.Equal(t, 1, r.Scored.Kills)
	require.Equal(t, 1, r.Scored.KillDays)
	require.Zero(t, r.Scored.SevereDays)
	require.InDelta(t, 2/1.5-1, Quantile(r.Scored.Excess, 0.5), 1e-9)
	require.InDelta(t, 86400-70, r.Scored.Seconds, 1e-9, "a minute and ten seconds of back-off it did not run")
	require.InDelta(t, 1, r.Scored.Days, 1e-12)
}

func abs(n int) int { return max(n, -n) }

func TestOOMKill_BackoffBoundsCrashLoop(t *testing.T) {
	r := fixed(t, recording(24*time.Hour, resources.Memory, always(2*gib)), resources.Memory, gib, func(s *replay.Setup) {
		s.Limits[resources.Memory] = replay.Limit{Policy: replay.Proportional, Factor: 1}
	})
	// Runs last 60 s. The backoff is 10, 20, 40, 80 and 160 s, then 300 s each time.
	most := 5 + int((86400-70-80-100-140-220)/360) + 1
	require.Equal(t, most, r.Scored.Kills)
	require.InDelta(t, 1, ratio(float64(r.Scored.SevereDays), float64(r.Scored.Dates)), 1e-12)
	require.InDelta(t, 1, ratio(float64(r.Scored.KillDays), float64(r.Scored.Dates)), 1e-12)
}

func TestScore_ExcludesGaps(t *testing.T) {
	r := recording(12*time.Hour, resources.CPU, always(1000))
	first, last := 60, len(r.At)-60
	r.At = append(r.At[:first], r.At[last:]...)
	for k := range r.Use {
		r.Use[k] = append(r.Use[k][:first], r.Use[k][last:]...)
	}
	s := fixed(t, r, resources.CPU, 1000, nil).Scored
	require.InDelta(t, 7200+2*60, s.Seconds, 1e-9, "the last minute before the gap stands for three")
	require.LessOrEqual(t, s.Seconds, 7200+180.0)
}

// flapper alternates hourly between one and two cores.
type flapper struct{ replay.Fixed }

func (flapper) Advise(now time.Time, _ resources.List) resources.Bounds {
	size := resources.List{}.With(resources.CPU, 1000+resources.Amount(now.Sub(start)/time.Hour%2)*1000)
	return resources.Bounds{Lower: size, Target: size, Upper: size}
}

func TestScore_Flapping(t *testing.T) {
	r := scored(t, recording(10*24*time.Hour, resources.CPU, always(500)), resources.CPU, 1000, flapper{}, nil).Scored
	require.InDelta(t, 24, float64(r.Changes)/r.Days, 0.1)
	require.InDelta(t, 1, r.ReversalShare(), 0.01)
	require.InDelta(t, 1, float64(r.Pointless)/float64(r.Changes), 0.01)
	require.InDelta(t, 24*math.Ln2, r.ChurnRate(), 0.1)
	require.InDelta(t, 24, float64(r.Moves)/r.Days, 0.1)
	require.InDelta(t, 3600, Quantile(r.Between, 0.5), 1e-9)
	require.Zero(t, r.Evictions)
}
