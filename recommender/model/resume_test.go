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
	for _, tc := range []struct {
		name           string
		later, earlier []uint64
	}{
		{name: "one more kill after a clock was set back", later: []uint64{2, 1}, earlier: []uint64{1}},
		{name: "one more kill than the list holds", later: []uint64{1, 9, 8, 7}, earlier: []uint64{9, 8, 7, 6}},
		{name: "no earlier kills", later: []uint64{3}},
		{name: "equal lists", later: []uint64{3, 2}, earlier: []uint64{3, 2}},
		{name: "longer of two unrelated lists", later: []uint64{3, 2, 1}, earlier: []uint64{5, 4}},
		{name: "same last kill with different earlier kills", later: []uint64{3, 4}, earlier: []uint64{3, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			window := func(kills []uint64) usage.Window { return usage.Window{Kill: now, Kills: kills} }
			require.Equal(t, tc.later, mergeWindows(window(tc.later), window(tc.earlier)).Kills)
			require.Equal(t, tc.later, mergeWindows(window(tc.earlier), window(tc.later)).Kills)
		})
	}
	older, newer := usage.Window{Kill: now, Kills: []uint64{2, 1}}, usage.Window{Kill: now.Add(time.Second)}
	require.Equal(t, newer, mergeWindows(older, newer), "where IDs are not known, the time of the last kill tells")
	require.Equal(t, newer, mergeWindows(newer, older))
}
