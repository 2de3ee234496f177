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
	for _, tc := range []struct {
		name   string
		recipe string
		held   bool
	}{
		{name: "default", recipe: "loadline:"},
		{name: "mixed", recipe: "loadline:cpu=mixed,"},
		{name: "without sustained minutes", recipe: "loadline:sustained-minutes=0,", held: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := recording(4*oneDay, resources.CPU, func(m int) float64 {
				if m >= 2000 && m < 2006 {
					return 5000
				}
				return 60
			})
			s := runRecipe(t, tc.recipe+"pod-min-cpu=10", r, resources.CPU, 100, nil).Scored
			require.Equal(t, tc.held, s.MeanRequest() > 150, "%g", s.MeanRequest())
			require.Equal(t, !tc.held, s.MeanRequest() < 100, "%g", s.MeanRequest())
		})
	}
}

func TestRecipe_MemoryMarginFollowsLimit(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name  string
		limit replay.Limit
		want  float64 // multiple of the daily peak
	}{
		{name: "limit equal to the request", limit: replay.Limit{Policy: replay.Proportional, Factor: 1}, want: 1.20},
		{name: "kept ratio without a recorded ratio counts as equal", limit: replay.Limit{Policy: replay.KeepRatio}, want: 1.20},
		{name: "limit of 1.1 times the request", limit: replay.Limit{Policy: replay.Proportional, Factor: 1.1}, want: 1.15},
		{name: "limit of 1.2 times the request", limit: replay.Limit{Policy: replay.Proportional, Factor: 1.2}, want: 1.10},
		{name: "limit of 3 times the request", limit: replay.Limit{Policy: replay.Proportional, Factor: 3}, want: 1.10},
		{name: "no limit", want: 1.10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, setup := recording(12*oneDay, resources.Memory, always(100*mib)), replay.DefaultSetup(resources.Memory)
			setup.Limits[resources.Memory] = tc.limit
			made, err := recipe.Parse("loadline:volatility=0,cold=0,restless=0,pod-min-memory=8")
			require.NoError(t, err)
			advisor := Recipe("", &made, usage.DefaultConfig()).Make(Case{Recording: r, Kind: resources.Memory, Setup: setup})
			end := adviceRecorder{}
			replay.Run(r, setup, advisor, &end)
			require.InEpsilon(t, tc.want*100*mib, float64(end.last.Target.Value(resources.Memory)), 0.002)
		})
	}
}

type adviceRecorder struct{ last resources.Bounds }

func (w *adviceRecorder) Sample(replay.Sample)    {}
func (w *adviceRecorder) Advised(a replay.Advice) { w.last = a.Bounds }
func (w *adviceRecorder) Changed(replay.Change)   {}
func (w *adviceRecorder) Killed(replay.Kill)      {}

func TestUpdate_WaitsWithinTightBounds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		target  resources.Amount
		changes int
	}{
		{name: "request below the lower bound", target: 1200, changes: 1},
		{name: "request just above the lower bound", target: 1100},
		{name: "request just below the upper bound", target: 700},
		{name: "request above the upper bound", target: 600, changes: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			of := func(f float64) resources.List { return resources.List{}.With(resources.CPU, tc.target.Scale(f)) }
			advisor := bounded{resources.Bounds{Lower: of(0.85), Target: of(1), Upper: of(1.5)}}
			r := recording(11*time.Hour, resources.CPU, always(100))
			require.Equal(t, tc.changes, scored(t, r, resources.CPU, 1000, advisor, nil).Scored.Changes)
		})
	}
}

func TestRecipe_CPUPressureRaisesRequest(t *testing.T) {
	for _, tc := range []struct {
		name   string
		recipe string
		want   float64
	}{
		{name: "CruiseKube", recipe: "cruisekube:", want: 600},
		{name: "shared CPU", recipe: "loadline:cpu=shared,peak=hours,", want: 600},
		{name: "loadline", recipe: "loadline:"},
		{name: "vpa", recipe: "vpa:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := recording(2*oneDay, resources.CPU, always(500))
			plain := runRecipe(t, tc.recipe+"pod-min-cpu=10", r, resources.CPU, 1000, nil).Scored
			for range r.At {
				r.Waiting = append(r.Waiting, 0.2)
			}
			r.Waiting[7] = math.NaN()
			pressed := runRecipe(t, tc.recipe+"pod-min-cpu=10", r, resources.CPU, 1000, nil).Scored
			if tc.want == 0 {
				require.Equal(t, plain, pressed)
				return
			}
			require.InDelta(t, 501, plain.Reserved/plain.Seconds, 2)
			require.InDelta(t, tc.want, pressed.Reserved/pressed.Seconds, 60, "once it went down from the first request")
			require.Greater(t, pressed.Reserved, 1.15*plain.Reserved)
		})
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
