package backtest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func runRecipe(t *testing.T, text string, r *replay.Recording, k resources.Kind, first resources.Amount, change func(*replay.Setup)) Result {
	t.Helper()
	made, err := recipe.Parse(text)
	require.NoError(t, err)
	advisor := Recipe(text, &made, usage.DefaultConfig()).Make(Case{Recording: r, Kind: k})
	return scored(t, r, k, first, advisor, change)
}

// The reference VPA escapes the limit only because its margin exceeds the minimum change.
func TestRecipe_FindsThrottledDemand(t *testing.T) {
	r := recording(20*oneDay, resources.CPU, func(m int) float64 { return 500 + 3500*float64(min(m/(2*1440), 1)) })
	ours := runRecipe(t, "loadline:pod-min-cpu=10", r, resources.CPU, 1000, equalLimit(resources.CPU)).Scored
	require.Less(t, ours.UnservedShare(), 0.02)
	require.Less(t, ours.Changes, 10)
	reference := runRecipe(t, "vpa:pod-min-cpu=10", r, resources.CPU, 1000, equalLimit(resources.CPU)).Scored
	require.Greater(t, reference.UnservedShare(), 0.10)
	t.Logf("work not served: ours %.4f with %d changes, reference %.4f with %d", ours.UnservedShare(), ours.Changes, reference.UnservedShare(), reference.Changes)
}

func TestRecipe_IgnoresSingleBurst(t *testing.T) {
	for text, held := range map[string]bool{"loadline:": false, "loadline:cpu=mixed,": false, "loadline:sustained-minutes=0,": true} {
		r := recording(4*oneDay, resources.CPU, func(m int) float64 {
			if m >= 2000 && m < 2006 {
				return 5000
			}
			return 60
		})
		s := runRecipe(t, text+"pod-min-cpu=10", r, resources.CPU, 100, nil).Scored
		require.Equal(t, held, s.MeanRequest() > 150, "%s: %g", text, s.MeanRequest())
		require.Equal(t, !held, s.MeanRequest() < 100, "%s: %g", text, s.MeanRequest())
	}
}

func TestRecipe_MemoryMarginFollowsLimit(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		limit replay.Limit
		want  float64 // multiple of the daily peak
	}{
		{replay.Limit{Policy: replay.Proportional, Factor: 1}, 1.20},
		{replay.Limit{Policy: replay.KeepRatio}, 1.20}, // no recorded ratio counts as equal
		{replay.Limit{Policy: replay.Proportional, Factor: 1.1}, 1.15},
		{replay.Limit{Policy: replay.Proportional, Factor: 1.2}, 1.10},
		{replay.Limit{Policy: replay.Proportional, Factor: 3}, 1.10},
		{replay.Limit{}, 1.10},
	} {
		r, setup := recording(12*oneDay, resources.Memory, always(100*mib)), replay.DefaultSetup(resources.Memory)
		setup.Limits[resources.Memory] = c.limit
		made, err := recipe.Parse("loadline:volatility=0,cold=0,restless=0,pod-min-memory=8")
		require.NoError(t, err)
		advisor := Recipe("", &made, usage.DefaultConfig()).Make(Case{Recording: r, Kind: resources.Memory, Setup: setup})
		end := adviceRecorder{}
		replay.Run(r, setup, advisor, &end)
		require.InEpsilon(t, c.want*100*mib, float64(end.last.Target.Value(resources.Memory)), 0.002, c.limit.String())
	}
}

type adviceRecorder struct{ last resources.Bounds }

func (w *adviceRecorder) Sample(replay.Sample)    {}
func (w *adviceRecorder) Advised(a replay.Advice) { w.last = a.Bounds }
func (w *adviceRecorder) Changed(replay.Change)   {}
func (w *adviceRecorder) Killed(replay.Kill)      {}

func TestUpdate_WaitsWithinTightBounds(t *testing.T) {
	for _, c := range []struct {
		target  resources.Amount
		changes int
	}{{1200, 1}, {1100, 0}, {700, 0}, {600, 1}} {
		of := func(f float64) resources.List { return resources.List{}.With(resources.CPU, c.target.Scale(f)) }
		advisor := bounded{resources.Bounds{Lower: of(0.85), Target: of(1), Upper: of(1.5)}}
		r := recording(11*time.Hour, resources.CPU, always(100))
		require.Equal(t, c.changes, scored(t, r, resources.CPU, 1000, advisor, nil).Scored.Changes, c.target)
	}
}

func TestRecipe_CPUPressureRaisesRequest(t *testing.T) {
	for text, want := range map[string]float64{"cruisekube:": 600, "loadline:cpu=shared,peak=hours,": 600, "loadline:": 0, "vpa:": 0} {
		r := recording(2*oneDay, resources.CPU, always(500))
		plain := runRecipe(t, text+"pod-min-cpu=10", r, resources.CPU, 1000, nil).Scored
		for range r.At {
			r.Waiting = append(r.Waiting, 0.2)
		}
		r.Waiting[7] = math.NaN()
		pressed := runRecipe(t, text+"pod-min-cpu=10", r, resources.CPU, 1000, nil).Scored
		if want == 0 {
			require.Equal(t, plain, pressed, text)
			continue
		}
		require.InDelta(t, 501, plain.Reserved/plain.Seconds, 2)
		require.InDelta(t, want, pressed.Reserved/pressed.Seconds, 60, "once it went down from the first request")
		require.Greater(t, pressed.Reserved, 1.15*plain.Reserved)
	}
}

func TestRecipe_ConvergesOnOrdinaryUsage(t *testing.T) {
	r := recording(2*oneDay, resources.CPU, func(m int) float64 { return 300 + float64(m*7919%400) })
	for i := range r.Use[resources.Memory] {
		r.Use[resources.Memory][i] = gib + float64(i*104729%(300<<20))
	}
	for _, name := range recipe.Names() {
		if name == "attune" || name == "attune-published" {
			name += ":memory-decrease=yes"
		}
		for k := range resources.Kind(resources.Kinds) {
			s := runRecipe(t, name, r, k, 8*gib, nil).Scored
			require.Less(t, s.Kills, 20, name)
			if strings.HasPrefix(name, "attune-published") {
				continue // requests four times the usage even at full confidence
			}
			require.Less(t, s.MeanRequest(), 4.0*gib, "%s %s: it came down", name, k)
			require.Positive(t, s.Changes, "%s %s", name, k)
		}
	}
}
