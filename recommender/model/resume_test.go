package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/usage"
)

// Two VPAs that select the same pod save at different times, and either may be read first.
func TestMergeWindows_KeepsLaterKills(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct{ later, earlier []uint64 }{
		"one more, while a clock was set back": {[]uint64{2, 1}, []uint64{1}},
		"one more than are remembered":         {[]uint64{1, 9, 8, 7}, []uint64{9, 8, 7, 6}},
		"none is known":                        {[]uint64{3}, nil},
		"the same":                             {[]uint64{3, 2}, []uint64{3, 2}},
		"longer":                               {[]uint64{3, 2, 1}, []uint64{5, 4}},
		"of nothing in common":                 {[]uint64{3, 4}, []uint64{3, 2}},
	} {
		window := func(kills []uint64) usage.Window { return usage.Window{Kill: now, Kills: kills} }
		require.Equal(t, c.later, mergeWindows(window(c.later), window(c.earlier)).Kills, name)
		require.Equal(t, c.later, mergeWindows(window(c.earlier), window(c.later)).Kills, name)
	}
	older, newer := usage.Window{Kill: now, Kills: []uint64{2, 1}}, usage.Window{Kill: now.Add(time.Second)}
	require.Equal(t, newer, mergeWindows(older, newer), "where IDs are not known, the time of the last kill tells")
	require.Equal(t, newer, mergeWindows(newer, older))
}
