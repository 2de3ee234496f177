package recipe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestCrane_SettingsPerResource(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name   string
		recipe string
		want   resources.List
	}{
		// 0.2 cores and 300 MiB, with a margin
		{name: "defaults", recipe: "crane", want: resources.NewList(229, 361758720)},
		{name: "utilisation of both resources", recipe: "crane:target-utilisation=0.5", want: resources.NewList(459, 723517440)},
		{name: "utilisation of CPU", recipe: "crane:cpu-target-utilisation=0.5", want: resources.NewList(459, 361758720)},
		{name: "utilisation of CPU and of both resources", recipe: "crane:target-utilisation=0.5,cpu-target-utilisation=1",
			want: resources.NewList(229, 723517440)},
		{name: "one day", recipe: "crane:days=1", want: resources.NewList(114, 120586239)},
		{name: "two days of memory", recipe: "crane:memory-days=2", want: resources.NewList(229, 120586239)},
		{name: "days per resource", recipe: "crane:cpu-days=2,memory-days=14", want: resources.NewList(114, 361758720)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.recipe)
			for k, uses := range [resources.Kinds][2]resources.Amount{{150, 50}, {250 * mib, 50 * mib}} {
				l.at = start
				l.use(resources.Kind(k), uses[0], day)
				l.use(resources.Kind(k), uses[1], 5*day)
			}
			got := l.bounds().Target
			for k := range resources.Kind(resources.Kinds) {
				require.InDelta(t, float64(tc.want.Value(k)), float64(got.Value(k)), 1, k)
			}
		})
	}
}

func TestCrane_OOMProtectionSettings(t *testing.T) {
	for _, tc := range []struct {
		name   string
		recipe string
		want   float64
	}{
		{name: "default", recipe: "crane", want: 612},
		{name: "protected", recipe: "crane:oom-protection=yes", want: 612},
		{name: "history longer than the age", recipe: "crane:oom-history-length=240h", want: 612},
		{name: "unprotected", recipe: "crane:oom-protection=no", want: 115},
		{name: "history shorter than the age", recipe: "crane:oom-history-length=48h", want: 115},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.recipe)
			l.use(resources.Memory, 50*mib, time.Hour)
			l.sketch.ObserveKill(l.at, 512*mib, 0)
			l.use(resources.Memory, 50*mib, 3*24*time.Hour)
			require.InDelta(t, tc.want, l.memory(), 3)
		})
	}
}

func TestCrane_CustomShapes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		recipe string
		want   resources.List
	}{
		{name: "default shapes", recipe: "crane:shapes=default", want: resources.NewList(250, 256*mib)},
		{name: "large and small shape", recipe: "crane:shapes=3c6g+0.3c0.125g", want: resources.NewList(300, 128*mib)},
		{name: "shape with much memory", recipe: "crane:shapes=0.2c8g+0.1c0.5g", want: resources.NewList(200, 8192*mib)},
		{name: "usage above the only shape", recipe: "crane:shapes=0.1c0.125g", want: resources.NewList(114, 120586239)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.recipe)
			l.use(resources.CPU, 50, time.Hour)
			l.use(resources.Memory, 50*mib, time.Hour)
			require.Equal(t, tc.want, l.bounds().Target)
		})
	}
	for _, tc := range []struct{ name, recipe, want string }{
		{name: "unknown shape", recipe: "crane:shapes=big",
			want: `shapes is "big": must be off, default or a list of cores and GiB such as 0.5c1g+1c2g`},
		{name: "empty shape", recipe: "crane:shapes=1c1g+", want: `shapes is "1c1g+": must be off, default or a list`},
		{name: "history without a unit", recipe: "crane:oom-history-length=7",
			want: `oom-history-length is "7": must be a time from 1h to 1440h`},
		{name: "history too long", recipe: "crane:oom-history-length=1500h", want: `must be a time from 1h to 1440h`},
		{name: "invalid OOM protection", recipe: "crane:oom-protection=sometimes",
			want: `oom-protection is "sometimes": must be one of yes, no`},
		{name: "utilisation of zero", recipe: "crane:memory-target-utilisation=0",
			want: `memory-target-utilisation is "0": must be a number from 0.01 to 1`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse(tc.recipe)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
