package backtest

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

const oneDay = 24 * time.Hour

func fixedAt(k resources.Kind, a resources.Amount) replay.Fixed {
	return replay.Fixed{Size: resources.List{}.With(k, a)}
}

func equalLimit(k resources.Kind) func(*replay.Setup) {
	return func(s *replay.Setup) { s.Limits[k] = replay.Limit{Policy: replay.Proportional, Factor: 1} }
}

// A real node reports neither usage above the limit nor the usage that killed the container.
func TestRun_AdvisorSeesUsageUpToLimit(t *testing.T) {
	cpu := &listener{}
	scored(t, recording(time.Hour, resources.CPU, always(3000)), resources.CPU, 1000, cpu, equalLimit(resources.CPU))
	require.Len(t, cpu.seen, 60)
	for _, use := range cpu.seen {
		require.Equal(t, resources.Amount(1000), use)
	}
	memory := &listener{}
	scored(t, recording(time.Hour, resources.Memory, func(m int) float64 { return gib * float64(1+m/30%2) }), resources.Memory, gib, memory, equalLimit(resources.Memory))
	require.Len(t, memory.seen, 30)
	for _, use := range memory.seen {
		require.Equal(t, resources.Amount(gib), use)
	}
	require.NotEmpty(t, memory.killed)
	require.Equal(t, resources.Amount(gib), memory.killed[0], "the limit, not what was wanted")
}

type listener struct {
	replay.Fixed
	seen, killed []resources.Amount
	at           []time.Time
}

func (l *listener) Observe(at time.Time, _ resources.Kind, use, _ resources.Amount) {
	l.seen, l.at = append(l.seen, use), append(l.at, at)
}

func (l *listener) Killed(_ time.Time, _, limit resources.Amount) { l.killed = append(l.killed, limit) }

func TestRun_ObservesCoarseSamplesAtEachTick(t *testing.T) {
	r := recording(time.Hour, resources.CPU, always(100))
	for i := range r.At {
		r.At[i] = start.Add(time.Duration(i) * 5 * time.Minute).UnixNano()
	}
	l := &listener{}
	scored(t, r, resources.CPU, 1000, l, nil)
	require.Len(t, l.at, 300)
	for i, at := range l.at {
		require.Equal(t, start.Add(time.Duration(i)*time.Minute), at)
	}
}

func TestRun_IgnoresSamplesBetweenTicks(t *testing.T) {
	r := recording(10*time.Hour, resources.CPU, func(second int) float64 { return float64(second) })
	for i := range r.At {
		r.At[i] = start.Add(time.Duration(i) * time.Second).UnixNano()
	}
	l := &listener{}
	scored(t, r, resources.CPU, 1000, l, nil)
	require.Equal(t, []resources.Amount{0, 60, 120, 180, 240, 300, 360, 420, 480, 540}, l.seen)
}

func TestScore_ThrottledWork(t *testing.T) {
	// Usage is two cores for ten minutes, then zero, under a limit of one core.
	burst := func(m int) float64 { return 2000 * float64(1-min(m/10, 1)) }
	r := recording(time.Hour, resources.CPU, burst)
	s := fixed(t, r, resources.CPU, 1000, equalLimit(resources.CPU)).Scored
	require.InDelta(t, 1.0/6, s.ThrottledShare(), 1e-12)
	require.InDelta(t, 0.5, s.UnservedShare(), 1e-12)
	require.Zero(t, s.Backlog)
	l := &listener{}
	s = scored(t, r, resources.CPU, 1000, l, func(s *replay.Setup) { equalLimit(resources.CPU)(s); s.CarryBacklog = true }).Scored
	require.InDelta(t, 600, s.Backlog, 1e-9, "core seconds that were put off")
	busy := 0
	for _, use := range l.seen {
		busy += int(use) / 1000
	}
	require.Equal(t, 20, busy, "and done in the next ten minutes")
}

// Otherwise the container would crash-loop.
func TestOOMKill_RaisesRequestBeforeRestart(t *testing.T) {
	config := recipe.DefaultConfig()
	config.PodMinCPU, config.PodMinMemory = 0, 0
	chains := recipe.VPA(config)
	r := recording(3*time.Hour, resources.Memory, func(m int) float64 { return gib * (0.5 + float64(m/60)*0.7) })
	for i := range r.Use[resources.CPU] {
		r.Use[resources.CPU][i] = 100
	}
	run := func(change func(*replay.Setup)) Result {
		c := Recipe("vpa", &chains, usage.DefaultConfig())
		return scored(t, r, resources.Memory, gib, c.Make(Case{Recording: r, Kind: resources.Memory}), change)
	}
	raised := run(nil)
	require.Equal(t, 2, raised.Scored.Kills, "at 1.2 and at 1.9 GiB")
	require.Zero(t, raised.Scored.Evictions)
	require.Positive(t, raised.Scored.Changes)
	evicted := run(func(s *replay.Setup) { s.Update.Mode = disruption.Recreate })
	require.Equal(t, evicted.Scored.Changes, evicted.Scored.Evictions)
	require.Positive(t, evicted.Scored.Evictions)
}

// Memory must be recommended before any CPU sample exists, or the container is killed forever.
func TestOOMKill_RaisesMemoryBeforeFirstSample(t *testing.T) {
	config := recipe.DefaultConfig()
	config.PodMinCPU, config.PodMinMemory = 0, 0
	chains := recipe.VPA(config)
	r := recording(3*time.Hour, resources.Memory, always(gib))
	for i := range r.Use[resources.CPU] {
		r.Use[resources.CPU][i] = 100
	}
	c := Recipe("vpa", &chains, usage.DefaultConfig())
	s := scored(t, r, resources.Memory, gib*3/4, c.Make(Case{Recording: r, Kind: resources.Memory}), nil)
	require.Equal(t, 1, s.Cold.Kills+s.Scored.Kills)
}

type learner struct {
	replay.Fixed
	target resources.Amount
}

func (l *learner) Killed(_ time.Time, _, limit resources.Amount) { l.target = 2 * limit }
func (l *learner) Advise(time.Time, resources.List) resources.Bounds {
	of := func(a resources.Amount) resources.List { return resources.List{}.With(resources.Memory, a) }
	return resources.Bounds{Lower: of(1), Target: of(l.target), Upper: of(resources.Max)}
}

func TestOOMKill_WaitsForPlannerWithoutAfterKill(t *testing.T) {
	r := recording(oneDay, resources.Memory, func(m int) float64 { return gib * (1 + float64(min(m/60, 1))) })
	kills := func(change func(*replay.Setup)) int {
		return scored(t, r, resources.Memory, gib, &learner{target: gib}, change).Scored.Kills
	}
	require.Equal(t, 1, kills(nil))
	require.Greater(t, kills(func(s *replay.Setup) { s.Update.AfterKill, s.Update.Planner.QuickOOMTime = false, 0 }), 100, "twelve hours")
	require.Equal(t, 2, kills(func(s *replay.Setup) { s.Update.AfterKill = false }), "the second was soon after a start")
}

func TestUpdate_RespectsBoundsAgeAndThreshold(t *testing.T) {
	wide := func(target resources.Amount) replay.Advisor {
		return bounded{resources.Bounds{
			Lower: resources.List{}.With(resources.CPU, 1), Target: resources.List{}.With(resources.CPU, target),
			Upper: resources.List{}.With(resources.CPU, 1e6),
		}}
	}
	r := recording(oneDay, resources.CPU, always(100))
	half := scored(t, r, resources.CPU, 1000, wide(500), nil)
	require.Equal(t, 1, half.Scored.Changes)
	require.InDelta(t, 750, half.Scored.MeanRequest(), 0.5, "after twelve hours")
	require.InDelta(t, 0.25, 1-half.Scored.Reserved/half.Scored.Initial, 1e-3)
	require.Zero(t, scored(t, r, resources.CPU, 1000, wide(950), nil).Scored.Changes, "too little")
	at := scored(t, r, resources.CPU, 1000, fixedAt(resources.CPU, 500), nil)
	require.InDelta(t, 500, at.Scored.MeanRequest(), 1, "outside of the bounds it does not wait")
	gone := scored(t, r, resources.CPU, 1000, fixedAt(resources.CPU, 500), func(s *replay.Setup) { s.Update.Mode = disruption.Recreate })
	require.Equal(t, 1, gone.Scored.Evictions)
	require.InDelta(t, 86400-60, gone.Scored.Seconds, 1e-9, "the restart took a minute")
}

type bounded struct{ resources.Bounds }

func (bounded) Observe(time.Time, resources.Kind, resources.Amount, resources.Amount) {}
func (bounded) Killed(time.Time, resources.Amount, resources.Amount)                  {}
func (b bounded) Advise(time.Time, resources.List) resources.Bounds                   { return b.Bounds }

func TestUpdate_RefusesCutsBelowUsage(t *testing.T) {
	use := func(m int) float64 { return gib * (1.25 - float64(m/60)*0.1) }
	r := recording(2*time.Hour, resources.Memory, use)
	held := scored(t, r, resources.Memory, 2*gib, fixedAt(resources.Memory, gib), nil).Scored
	require.Zero(t, held.Kills)
	require.Equal(t, 1, held.Changes)
	require.InDelta(t, 1.5*gib, held.MeanRequest(), gib/50, "cut after an hour, when 1.15 GiB fit")
	cut := scored(t, r, resources.Memory, 2*gib, fixedAt(resources.Memory, gib), func(s *replay.Setup) { s.Update.RefuseUnsafeCuts = false }).Scored
	require.Positive(t, cut.Kills)
}

func TestRun_ScoresWarmUpSeparately(t *testing.T) {
	r := recording(4*oneDay, resources.CPU, func(m int) float64 { return 1000 - 500*float64(min(m/1440, 1)) })
	options := defaultOptions()
	options.Kinds = options.Kinds[:1]
	first := Candidate{"first", func(Case) replay.Advisor { return replay.Fixed{} }}
	s := Run(r, options, first)[0]
	require.False(t, s.Short)
	require.InDelta(t, 1, s.Cold.Days, 1e-12)
	require.InDelta(t, 3, s.Scored.Days, 1e-12)
	require.Equal(t, resources.Amount(2000), s.First, "twice the highest use of the first hour")
	require.InDelta(t, 1000, s.Cold.SlackAbsolute(), 1e-9)
	require.InDelta(t, 1500, s.Scored.SlackAbsolute(), 1e-9)
	short := Run(recording(40*time.Hour, resources.CPU, always(1)), options, first)[0]
	require.True(t, short.Short)
	require.InDelta(t, 10.0/24, short.Cold.Days, 1e-12)
}

func TestScore_ConvergenceAndReactions(t *testing.T) {
	// Usage rises to two cores on the second day. The request follows six hours later and
	// overshoots.
	rises := func(m int) float64 { return 1000 + 1000*float64(min(m/1440, 1)) }
	script := scripted{{0, 1000}, {30 * time.Hour, 3000}, {40 * time.Hour, 2000}}
	r := scored(t, recording(5*oneDay, resources.CPU, rises), resources.CPU, 4000, script, nil)
	require.Equal(t, Outcome{Seconds: 40*3600 + 60, Reached: true}, r.Near)
	require.Equal(t, []Outcome{{Seconds: 6*3600 + 60, Reached: true}}, r.Rises)
	require.InDeltaSlice(t, []float64{0.5}, r.Overshoot, 1e-9)
	require.Empty(t, r.Falls)
	falls := func(m int) float64 { return 1000 - 800*float64(min(m/1440, 1)) }
	r = scored(t, recording(5*oneDay, resources.CPU, falls), resources.CPU, 1000, scripted{{0, 1000}, {60 * time.Hour, 200}}, nil)
	require.Equal(t, []Outcome{{Seconds: 12*3600 + 120, Reached: true}}, r.Falls, "a day after the last peak it is sure")
	still := scored(t, recording(5*oneDay, resources.CPU, rises), resources.CPU, 500, replay.Fixed{}, nil)
	require.Equal(t, Outcome{Seconds: 5 * 86400, Reached: false}, still.Near)
	require.Equal(t, []Outcome{{Seconds: 5 * 86400, Reached: false}}, still.Rises)
}

// scripted recommends the size of the latest entry that has begun.
type scripted []struct {
	after time.Duration
	size  resources.Amount
}

func (scripted) Observe(time.Time, resources.Kind, resources.Amount, resources.Amount) {}
func (scripted) Killed(time.Time, resources.Amount, resources.Amount)                  {}
func (s scripted) Advise(now time.Time, _ resources.List) resources.Bounds {
	var b resources.Bounds
	for _, e := range s {
		if now.Sub(start) > e.after {
			size := resources.List{}.With(resources.CPU, e.size)
			b = resources.Bounds{Lower: size, Target: size, Upper: size}
		}
	}
	return b
}

func TestScore_Regret(t *testing.T) {
	r := recording(4*oneDay, resources.Memory, func(m int) float64 { return gib * float64(1+m/1440) })
	s := fixed(t, r, resources.Memory, 8*gib, nil).Scored
	require.InDelta(t, (7+6+5+4)*gib*86400.0, s.Over, 1)
	require.InDelta(t, 0.1*(1+2+3+4)*gib*86400.0, s.OverDaily, 1, "a tenth of each day's peak")
	require.InDelta(t, (3.4+2.4+1.4+0.4)*gib*86400.0, s.OverStatic, 1e3)
	require.InDelta(t, s.Over-s.OverDaily, s.Regret(), 1)
}

func TestRun_IsDeterministic(t *testing.T) {
	r := recording(5*oneDay, resources.CPU, func(m int) float64 { return 500 + 400*math.Sin(float64(m)/300) + float64(m*7919%200) })
	for i := range r.Use[resources.Memory] {
		r.Use[resources.Memory][i] = gib * (1 + 0.5*math.Cos(float64(i)/777))
	}
	run := func() string {
		chains := recipe.VPA(recipe.DefaultConfig())
		all := Baselines(usage.DefaultConfig())
		all = append(all, Recipe("vpa", &chains, usage.DefaultConfig()))
		results := Run(r, defaultOptions(), all...)
		require.Len(t, results, 12)
		out, err := json.Marshal(results)
		require.NoError(t, err)
		return string(out)
	}
	require.Equal(t, run(), run())
}

func TestSetupValidate_ReportsAllProblems(t *testing.T) {
	s := replay.DefaultSetup()
	s.Limits[resources.CPU] = replay.Limit{Policy: replay.Proportional, Factor: 0.5}
	s.Guess, s.Tick, s.MaxBackoff, s.Update.Mode = 0, 0, 0, disruption.Off
	err := s.Validate()
	for _, text := range []string{"number of sized kinds", "limit factor of cpu is 0.5: must be from 1", "guessed request is 0", "tick is 0s", "longest back-off is 0s: must be at least the first one, 10s", "update mode"} {
		require.ErrorContains(t, err, text)
	}
	require.NoError(t, replay.DefaultSetup(resources.CPU).Validate())
}
