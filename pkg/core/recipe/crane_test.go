package recipe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestCrane_SettingsPerResource(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]resources.List{ // 0.2 cores and 300 MiB, with a margin
		"crane":                            resources.NewList(229, 361758720),
		"crane:target-utilisation=0.5":     resources.NewList(459, 723517440),
		"crane:cpu-target-utilisation=0.5": resources.NewList(459, 361758720),
		"crane:target-utilisation=0.5,cpu-target-utilisation=1": resources.NewList(229, 723517440),
		"crane:days=1":                    resources.NewList(114, 120586239),
		"crane:memory-days=2":             resources.NewList(229, 120586239),
		"crane:cpu-days=2,memory-days=14": resources.NewList(114, 361758720),
	} {
		l := live(t, text)
		for k, uses := range [resources.Kinds][2]resources.Amount{{150, 50}, {250 * mib, 50 * mib}} {
			l.at = start
			l.use(resources.Kind(k), uses[0], day)
			l.use(resources.Kind(k), uses[1], 5*day)
		}
		got := l.bounds().Target
		for k := range resources.Kind(resources.Kinds) {
			require.InDelta(t, float64(want.Value(k)), float64(got.Value(k)), 1, "%s %s", text, k)
		}
	}
}

func TestCrane_OOMProtectionSettings(t *testing.T) {
	for text, want := range map[string]float64{
		"crane": 612, "crane:oom-protection=yes": 612, "crane:oom-history-length=240h": 612,
		"crane:oom-protection=no": 115, "crane:oom-history-length=48h": 115,
	} {
		l := live(t, text)
		l.use(resources.Memory, 50*mib, time.Hour)
		l.sketch.ObserveKill(l.at, 512*mib, 0)
		l.use(resources.Memory, 50*mib, 3*24*time.Hour)
		require.InDelta(t, want, l.memory(), 3, text)
	}
}

func TestCrane_CustomShapes(t *testing.T) {
	for text, want := range map[string]resources.List{
		"crane:shapes=default":         resources.NewList(250, 256*mib),
		"crane:shapes=3c6g+0.3c0.125g": resources.NewList(300, 128*mib),
		"crane:shapes=0.2c8g+0.1c0.5g": resources.NewList(200, 8192*mib),
		"crane:shapes=0.1c0.125g":      resources.NewList(114, 120586239),
	} {
		l := live(t, text)
		l.use(resources.CPU, 50, time.Hour)
		l.use(resources.Memory, 50*mib, time.Hour)
		require.Equal(t, want, l.bounds().Target, text)
	}
	for text, problem := range map[string]string{
		"crane:shapes=big":                  `shapes is "big": must be off, default or a list of cores and GiB such as 0.5c1g+1c2g`,
		"crane:shapes=1c1g+":                `shapes is "1c1g+": must be off, default or a list`,
		"crane:oom-history-length=7":        `oom-history-length is "7": must be a time from 1h to 1440h`,
		"crane:oom-history-length=1500h":    `must be a time from 1h to 1440h`,
		"crane:oom-protection=sometimes":    `oom-protection is "sometimes": must be one of yes, no`,
		"crane:memory-target-utilisation=0": `memory-target-utilisation is "0": must be a number from 0.01 to 1`,
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, problem)
	}
}
