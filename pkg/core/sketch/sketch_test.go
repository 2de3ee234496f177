package sketch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) int64 { return start.Add(d).UnixNano() }

// simulateKills adds a tenth to the estimated need at each kill, and returns the number of kills
// and the final amount.
func simulateKills(tr *Sketch, has, needs float64, apart time.Duration) (kills int, last float64) {
	for at := start; has < needs; at = at.Add(apart) {
		tr.ObserveKill(at, resources.Amount(has), 0)
		kills++
		has = max(has, 1.1*tr.Peaks.CurrentPeak())
	}
	return kills, has
}

const mib = 1 << 20

func TestOOMKill_RapidKillsEscalateFaster(t *testing.T) {
	for _, tc := range []struct {
		name             string
		has, needs, most float64
		kills            int
	}{
		{name: "32 to 45 MiB", has: 32, needs: 45, most: 53, kills: 1},
		{name: "32 to 400 MiB", has: 32, needs: 400, most: 880, kills: 5},
		{name: "100 to 400 MiB", has: 100, needs: 400, most: 880, kills: 4},
		{name: "1000 to 3000 MiB", has: 1000, needs: 3000, most: 4000, kills: 3},
		{name: "400 to 440 MiB", has: 400, needs: 440, most: 530, kills: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kills, last := simulateKills(New(Needs{Peaks: true}), tc.has*mib, tc.needs*mib, 2*time.Minute)
			require.LessOrEqual(t, kills, tc.kills, "ended at %v MiB", last/mib)
			require.LessOrEqual(t, last, tc.most*mib)
		})
	}
	slow, _ := simulateKills(New(Needs{Peaks: true}), 32*mib, 400*mib, 7*time.Hour)
	require.Greater(t, slow, 6, "kills in different windows do not add up")

	tr := New(Needs{Peaks: true})
	for i := range 20 {
		tr.ObserveKill(start.Add(time.Duration(i)*time.Minute), 100*mib, 0)
		again, err := Read(Needs{Peaks: true}, tr.Image(), start, 0)
		require.NoError(t, err)
		require.Equal(t, tr.Peaks, again.Peaks)
		tr = again
	}
	require.InEpsilon(t, 120*mib, tr.Peaks.CurrentPeak(), 0.002)
}

func TestKills_KeepLatest(t *testing.T) {
	var k Kills
	_, found := k.LargestRequest(at(0), time.Hour)
	require.False(t, found)
	for i := range 6 {
		k.add(kill{at: at(time.Duration(i) * time.Hour), request: resources.Amount(600 - i*100), reached: resources.Amount(i)})
	}
	largest, found := k.LargestRequest(at(5*time.Hour), 24*time.Hour)
	require.True(t, found)
	require.Equal(t, resources.Amount(400), largest, "of the last four")
	require.Equal(t, resources.Amount(5), k.ReachedMemory(at(5*time.Hour), 24*time.Hour))
	largest, _ = k.LargestRequest(at(5*time.Hour), time.Hour)
	require.Equal(t, resources.Amount(200), largest)
	_, found = k.LargestRequest(at(7*time.Hour), time.Hour)
	require.False(t, found)
}

func TestKills_SmallKillsDoNotHideLargeOne(t *testing.T) {
	var k Kills
	k.add(kill{at: at(0), request: 800, reached: 900})
	for i := range 20 {
		k.add(kill{at: at(time.Duration(i+1) * time.Hour), request: 100, reached: resources.Amount(100 + i%2)})
	}
	largest, _ := k.LargestRequest(at(20*time.Hour), 24*time.Hour)
	require.Equal(t, resources.Amount(800), largest)
	require.Equal(t, resources.Amount(900), k.ReachedMemory(at(20*time.Hour), 24*time.Hour))
	require.Equal(t, resources.Amount(101), k.ReachedMemory(at(20*time.Hour), 6*time.Hour), "and the small ones count when it is old")
	k.add(kill{at: at(0), request: 800, reached: 900}) // once more, as in a merge
	again := k
	again.merge(&k)
	require.Equal(t, k, again)
}
