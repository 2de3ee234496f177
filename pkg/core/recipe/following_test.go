package recipe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// memoryOf returns the request and the amount protected by the limit, in MiB.
func (l *life) memoryOf(t *testing.T) (request, protected float64) {
	b := l.bounds()
	require.InDelta(t, 0.95*float64(b.Target.Value(resources.Memory)), float64(b.Lower.Value(resources.Memory)), 1)
	return float64(b.Target.Value(resources.Memory)) / mib, float64(b.Upper.Value(resources.Memory)) / mib
}

// Usage is 300 MiB for four days and 100 MiB for two.
func TestLoadlineFollowing_RequestFollowsUsage(t *testing.T) {
	for _, tc := range []struct {
		name    string
		recipe  string
		ratio   sketch.LimitRatio
		follows bool
		step    string
	}{
		{
			name:   "limit above the request",
			recipe: "loadline:memory=following", ratio: 150, follows: true,
			step: "highest of the last day + 0.1, if that is less",
		},
		{
			name:   "no limit that follows the request",
			recipe: "loadline:memory=following", ratio: sketch.NoLimitRatio, follows: true,
			step: "highest of the last day + 0.1, if that is less",
		},
		{
			name:   "limit equal to the request",
			recipe: "loadline:memory=following", ratio: 100,
			step: "the same for the request, as limit and request are equal",
		},
		{
			name:   "unknown limit",
			recipe: "loadline:memory=following", ratio: sketch.UnknownRatio,
			step: "the same for the request, as the limit is not known yet",
		},
		{
			name:   "fewer hours than declared-hours",
			recipe: "loadline:memory=following,declared-hours=200", ratio: 150,
			step: "the same for the request, as less than 200 hours were seen",
		},
		{
			name:   "larger margin",
			recipe: "loadline:memory=following,margin=0.3", ratio: 150, follows: true,
			step: "highest of the last day + 0.1, if that is less",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.recipe)
			require.True(t, l.recipe.SeparateMemoryLimit)
			require.True(t, l.recipe.ForKind(resources.Memory).SeparateMemoryLimit)
			usual := live(t, "loadline")
			if tc.recipe != "loadline:memory=following" {
				usual = live(t, "loadline:"+tc.recipe[len("loadline:memory=following,"):])
			}
			for _, one := range []*life{l, usual} {
				one.sketch.SetLimitRatio(tc.ratio)
				one.use(resources.Memory, 300*mib, 4*24*time.Hour)
				one.use(resources.Memory, 100*mib, 2*24*time.Hour)
			}
			request, protected := l.memoryOf(t)
			require.Equal(t, usual.memory(), protected, "request of the usual preset")
			if tc.follows {
				require.InEpsilon(t, 110, request, 0.002)
				require.Greater(t, protected, 300.0)
			} else {
				require.Equal(t, protected, request)
			}
			l.sketch.Now = l.at.UnixNano()
			steps := l.recipe.Explain(Input{Sketch: l.sketch, Containers: 1}).Target[resources.Memory]
			require.Equal(t, tc.step, steps[len(steps)-2].Step)
		})
	}
}

func TestLoadlineFollowing_StartsAfterFirstDay(t *testing.T) {
	l := live(t, "loadline:memory=following")
	l.sketch.SetLimitRatio(150)
	l.use(resources.Memory, 100*mib, 23*time.Hour)
	request, protected := l.memoryOf(t)
	require.Equal(t, protected, request)
	l.use(resources.Memory, 100*mib, 2*time.Hour)
	request, protected = l.memoryOf(t)
	require.InEpsilon(t, 110, request, 0.002)
	require.Greater(t, protected, 110.5, "it is still new")
}

func TestLoadlineFollowing_OOMKillRaisesRequestAndLimit(t *testing.T) {
	l := live(t, "loadline:memory=following")
	l.sketch.SetLimitRatio(150)
	l.use(resources.Memory, 100*mib, 4*24*time.Hour)
	l.sketch.ObserveKill(l.at, 100*mib, 200*mib)
	request, protected := l.memoryOf(t)
	require.InEpsilon(t, 1.1*240, request, 0.002)
	require.GreaterOrEqual(t, protected, request)
}

func TestLoadlineFollowing_NeedsNoMoreState(t *testing.T) {
	following, usual := live(t, "loadline:memory=following"), live(t, "loadline")
	for _, l := range []*life{following, usual} {
		l.sketch.SetLimitRatio(150)
		l.use(resources.Memory, 300*mib, 3*24*time.Hour)
		l.use(resources.CPU, 100, 3*24*time.Hour)
	}
	require.Equal(t, usual.sketch.Image(), following.sketch.Image())
	again, err := sketch.Read(following.recipe.Needs, following.sketch.Image(), following.at, 0)
	require.NoError(t, err)
	in := Input{Sketch: following.sketch, Containers: 1}
	require.Equal(t, following.recipe.Recommend(in).Bounds, following.recipe.Recommend(Input{Sketch: again, Containers: 1}).Bounds)
}
