package backtest

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func TestRunTimeline_RecordsFramesAndEvents(t *testing.T) {
	// Usage is 0.25 GiB for six hours, then 1 GiB under a limit that is too low for it.
	r := recording(12*time.Hour, resources.Memory, func(m int) float64 { return gib * (0.25 + 0.75*float64(m/360)) })
	for i := range r.Use[resources.CPU] {
		r.Use[resources.CPU][i] = 100
	}
	made, err := recipe.Parse("loadline:pod-min-memory=8")
	require.NoError(t, err)
	options := defaultOptions()
	options.Setup = func(k resources.Kind) replay.Setup {
		s := replay.DefaultSetup(k)
		s.Initial = s.Initial.With(resources.Memory, gib/2)
		return s
	}
	f := RunTimeline(r, resources.Memory, options, Recipe("it", &made, usage.DefaultConfig()), 12)
	require.Len(t, f.Frames, 12)
	require.InDelta(t, 0.25*gib, f.Frames[1].Mean, 1)
	require.InDelta(t, gib, f.Frames[11].Highest, 1)
	require.InEpsilon(t, 1.2, f.Frames[11].Limit/f.Frames[11].Request, 1e-6)
	require.Positive(t, f.Frames[5].Starved+f.Frames[6].Starved, "until it was killed")
	require.Zero(t, f.Frames[11].Starved)
	kills, changes := 0, 0
	for _, e := range f.Events {
		if e.Kill {
			kills++
			require.InDelta(t, gib, e.From, 1)
		} else {
			changes++
		}
	}
	require.Positive(t, kills)
	require.Positive(t, changes)
	require.Len(t, f.Names[0], 5)
	for i := range 3 {
		require.Len(t, f.Frames[11].Steps[i], len(f.Names[i]))
	}
	require.InDelta(t, f.Frames[11].Steps[0][3], f.Frames[11].Steps[1][0], 1, "the lower bound follows the target")
	fixed := RunTimeline(r, resources.Memory, options, Candidate{"fixed", func(Case) replay.Advisor { return replay.Fixed{} }}, 3)
	require.True(t, math.IsNaN(fixed.Frames[0].Target))
	require.Nil(t, fixed.Frames[0].Steps[0])
}
