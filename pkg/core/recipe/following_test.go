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
	for name, c := range map[string]struct {
		recipe  string
		ratio   sketch.LimitRatio
		follows bool
		says    string
	}{
		"a limit that leaves room":   {"loadline:memory=following", 150, true, "highest of the last day + 0.1, if that is less"},
		"a limit that stands":        {"loadline:memory=following", sketch.NoLimitRatio, true, "highest of the last day + 0.1, if that is less"},
		"limit and request equal":    {"loadline:memory=following", 100, false, "the same for the request, as limit and request are equal"},
		"the limit was never seen":   {"loadline:memory=following", sketch.UnknownRatio, false, "the same for the request, as the limit is not known yet"},
		"new for a hundred hours":    {"loadline:memory=following,declared-hours=200", 150, false, "the same for the request, as less than 200 hours were seen"},
		"with a larger fixed margin": {"loadline:memory=following,margin=0.3", 150, true, "highest of the last day + 0.1, if that is less"},
	} {
		l := live(t, c.recipe)
		require.True(t, l.recipe.SeparateMemoryLimit)
		require.True(t, l.recipe.ForKind(resources.Memory).SeparateMemoryLimit)
		usual := live(t, "loadline")
		if c.recipe != "loadline:memory=following" {
			usual = live(t, "loadline:"+c.recipe[len("loadline:memory=following,"):])
		}
		for _, one := range []*life{l, usual} {
			one.sketch.SetLimitRatio(c.ratio)
			one.use(resources.Memory, 300*mib, 4*24*time.Hour)
			one.use(resources.Memory, 100*mib, 2*24*time.Hour)
		}
		request, protected := l.memoryOf(t)
		require.Equal(t, usual.memory(), protected, "%s: what the usual preset requests", name)
		if c.follows {
			require.InEpsilon(t, 110, request, 0.002, name)
			require.Greater(t, protected, 300.0)
		} else {
			require.Equal(t, protected, request, name)
		}
		l.sketch.Now = l.at.UnixNano()
		steps := l.recipe.Explain(Input{Sketch: l.sketch, Containers: 1}).Target[resources.Memory]
		require.Equal(t, c.says, steps[len(steps)-2].Step, name)
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
