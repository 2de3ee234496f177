package usage

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func (s *Store) observeKill(id string, at time.Time, memory, limit resources.Amount) Reason {
	return s.ObserveOOM(OOM{Container: app, At: at, Memory: memory * mi, Limit: limit * mi, ID: id})
}

func TestObserveOOM_CountsOnce(t *testing.T) {
	s := tracking(DefaultConfig())
	at := clock(t, "10:05")
	require.Equal(t, Accepted, s.observeKill("one", at, 1000, 0))
	version := s.Version(0)
	require.Equal(t, Duplicate, s.observeKill("one", at, 3000, 0))
	require.Equal(t, 1200*mi, s.peakOf(t, app))
	require.Equal(t, version, s.Version(0))
	require.Equal(t, Accepted, s.observeKill("two", at, 900, 0), "another in the same second")
	require.Greater(t, s.Version(0), version, "the kill must be remembered, though the peak stays")
	require.Equal(t, Accepted, s.observeKill("", at.Add(-time.Second), 3000, 0), "without an ID each counts")
	require.Equal(t, 3600*mi, s.peakOf(t, app))
}

func TestObserveOOM_DeduplicatesAcrossRestarts(t *testing.T) {
	s := tracking(DefaultConfig())
	at := clock(t, "10:05")
	s.observeKill("one", at, 1000, 0)
	for _, tc := range []struct {
		name string
		now  time.Time
		open bool
	}{
		{name: "open window", now: at.Add(time.Minute), open: true},
		{name: "closed window", now: at.Add(day)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			again := tracking(DefaultConfig())
			for c, w := range s.Windows(tc.now, 0) {
				require.Equal(t, at, w.Kill)
				require.Len(t, w.Kills, 1)
				require.Equal(t, tc.open, !w.End.IsZero())
				require.True(t, again.RestoreWindow(c, w))
				require.False(t, again.RestoreWindow(c, w))
			}
			require.Equal(t, Duplicate, again.observeKill("one", at, 3000, 0))
			require.Equal(t, Accepted, again.observeKill("two", at.Add(-time.Second), 3000, 0), "the clock was set back")
			require.Equal(t, Duplicate, again.observeKill("two", at.Add(-time.Second), 3000, 0))
			require.Equal(t, Duplicate, again.observeKill("one", at, 3000, 0))
		})
	}
	for range s.Windows(at.Add(day+1), 0) {
		require.Fail(t, "an interval later there is nothing to remember")
	}
}

func TestObserveOOM_DiscoveredKillsMustBeRecent(t *testing.T) {
	s := tracking(DefaultConfig())
	now := clock(t, "10:05")
	found := func(id string, age time.Duration) Reason {
		return s.ObserveOOM(OOM{Container: app, At: now.Add(-age), Memory: 100 * mi, ID: id, Discovered: now})
	}
	require.Equal(t, TooOld, found("old", day+1))
	_, _, peaked := s.Peak(app)
	require.False(t, peaked)
	require.Equal(t, Accepted, found("fresh", day))
}

func TestObserveOOM_UsesLimitWithoutUsage(t *testing.T) {
	s := tracking(DefaultConfig())
	require.Equal(t, Accepted, s.observeKill("one", clock(t, "10:05"), 1000, 2000))
	require.Equal(t, 2400*mi, s.peakOf(t, app))
	require.Equal(t, NegativeAmount, s.observeKill("two", clock(t, "10:06"), 1000, -1))

	s = tracking(DefaultConfig())
	s.use(resources.Memory, clock(t, "10:00"), 1100*mi)
	s.observeKill("one", clock(t, "10:05"), 1000, 2000)
	require.Equal(t, 1320*mi, s.peakOf(t, app), "the use is known")
}

// A container that had its estimated need and was killed again needs more than the ratio predicts.
func TestObserveOOM_RepeatedKillsEscalate(t *testing.T) {
	s := tracking(DefaultConfig())
	at, had := clock(t, "10:00"), resources.Amount(1000)
	for i, want := range []resources.Amount{1200, 1728, 2985} {
		at = at.Add(time.Minute)
		require.Equal(t, Accepted, s.observeKill(at.String(), at, had, 0))
		require.InDelta(t, float64(want*mi), float64(s.peakOf(t, app)), float64(8*mi), "kill %d", i)
		had = s.peakOf(t, app)/mi + 1
	}
	for range 10 {
		at = at.Add(time.Minute)
		before := s.peakOf(t, app)
		require.Equal(t, Accepted, s.observeKill(at.String(), at, had, 0))
		require.Less(t, s.peakOf(t, app), before*5/2, "a step is at most about the double")
		had = s.peakOf(t, app)/mi + 1
	}
}

func TestObserveOOM_KillsUnderCapDoNotEscalate(t *testing.T) {
	s := tracking(DefaultConfig())
	at := clock(t, "10:00")
	for range 50 {
		at = at.Add(10 * time.Minute)
		require.Equal(t, Accepted, s.observeKill(at.String(), at, 1000, 1000))
		require.Equal(t, 1200*mi, s.peakOf(t, app))
	}
	at = at.Add(day + time.Minute) // no kill for an interval resets the escalation
	require.Equal(t, Accepted, s.observeKill("new", at, 1200, 1200))
	require.Equal(t, 1440*mi, s.peakOf(t, app))
}

func TestForget_IncreasesVersion(t *testing.T) {
	s := tracking(DefaultConfig())
	s.use(resources.Memory, morning, 100*mi)
	version := s.Version(0)
	s.Forget(app)
	require.Greater(t, s.Version(0), version, "its peak is final, so the checkpoint changes")
}

// The clock of a node may be set back, so kills are distinguished by ID and not by time.
func TestObserveOOM_OutOfOrderKillsCountOnce(t *testing.T) {
	s := tracking(DefaultConfig())
	at := clock(t, "10:05")
	require.Equal(t, Accepted, s.observeKill("one", at, 1000, 0))
	require.Equal(t, Accepted, s.observeKill("two", at.Add(-time.Hour), 2000, 0))
	require.Equal(t, 2880*mi, s.peakOf(t, app), "it had more than it was taken to need")
	require.Equal(t, Accepted, s.observeKill("three", at.Add(-30*time.Minute), 900, 0))
	version := s.Version(0)
	for range 2 { // in any order, repeatedly
		for id, seen := range map[string]time.Duration{"one": 0, "two": -time.Hour, "three": -30 * time.Minute} {
			require.Equal(t, Duplicate, s.observeKill(id, at.Add(seen), 9000, 0), id)
		}
	}
	require.Equal(t, version, s.Version(0))
	for c, w := range s.Windows(at, 0) {
		require.Equal(t, app, c)
		require.Equal(t, at, w.Kill, "the latest, in which order ever they came")
		require.Len(t, w.Kills, 3)
	}
}

func TestObserveOOM_RemembersLastKills(t *testing.T) {
	s := tracking(DefaultConfig())
	at := clock(t, "10:05")
	name := func(i int) string { return fmt.Sprint("kill ", i) }
	for i := range 100 {
		require.Equal(t, Accepted, s.observeKill(name(i), at.Add(-time.Duration(i)*time.Second), 1000, 0))
		for j := max(0, i-RememberedKills+1); j <= i; j++ {
			require.Equal(t, Duplicate, s.observeKill(name(j), at.Add(-time.Duration(j)*time.Second), 1000, 0), "%d after %d", j, i)
		}
	}
	for _, w := range s.Windows(at, 0) {
		require.Len(t, w.Kills, RememberedKills)
		again := tracking(DefaultConfig())
		w.Kills = append(w.Kills, 1, 2, 3) // more than the store writes
		require.True(t, again.RestoreWindow(app, w))
		require.Equal(t, Duplicate, again.observeKill(name(99), at.Add(-99*time.Second), 1000, 0))
		require.Equal(t, Duplicate, again.observeKill(name(100-RememberedKills), at, 1000, 0))
		require.Equal(t, Accepted, again.observeKill(name(100), at.Add(-100*time.Second), 1000, 0))
	}
}

// A checkpoint may contain only the time of the last kill.
func TestRestoreWindow_ComparesTimesWithoutIDs(t *testing.T) {
	s := tracking(DefaultConfig())
	at := clock(t, "10:05")
	require.True(t, s.RestoreWindow(app, Window{Usage: none, OOM: none, Kill: at}))
	require.Equal(t, Duplicate, s.observeKill("one", at, 3000, 0))
	require.Equal(t, Duplicate, s.observeKill("zero", at.Add(-time.Second), 3000, 0))
	require.Equal(t, Accepted, s.observeKill("two", at.Add(time.Second), 3000, 0))
	require.Equal(t, Accepted, s.observeKill("three", at.Add(-time.Second), 3000, 0), "now IDs tell")
	require.Equal(t, Duplicate, s.observeKill("one", at, 3000, 0), "its ID was noted when time told it")
	require.Equal(t, Duplicate, s.observeKill("zero", at.Add(-time.Second), 3000, 0))
}

// IDs recorded in this state are incomplete.
func TestRestoreWindow_ComparesTimesAcrossRestarts(t *testing.T) {
	at := clock(t, "10:05")
	w := Window{Usage: none, OOM: none, Kill: at}
	for range 3 {
		s := tracking(DefaultConfig())
		require.True(t, s.RestoreWindow(app, w))
		require.Equal(t, Duplicate, s.observeKill("one", at, 3000, 0))
		for _, w = range s.Windows(at, 0) {
			require.Equal(t, at, w.Kill)
			require.Empty(t, w.Kills)
		}
		require.Equal(t, Duplicate, s.observeKill("zero", at.Add(-time.Second), 3000, 0))
	}
}

func TestContainer_SizeIsBounded(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(container{}), uintptr(88))
	require.LessOrEqual(t, unsafe.Sizeof(kill{}), uintptr(64))
}

// A container has separate clocks for samples and kills.
func TestObserve_AcceptsSamplesFromBeforeOOMKill(t *testing.T) {
	for _, tc := range []struct {
		name   string
		sample string
		bytes  resources.Amount
		want   Reason
		peak   resources.Amount // after the revision of the kill
	}{
		{name: "before the kill", sample: "10:04", bytes: 1800, want: Accepted, peak: 2160},
		{name: "at the kill", sample: "10:05", bytes: 1800, want: Accepted, peak: 2160},
		{name: "after the kill", sample: "10:06", bytes: 1800, want: Accepted, peak: 2160},
		{name: "of the last sample again", sample: "10:00", bytes: 900, want: Accepted, peak: 1080},
		{name: "less than was requested", sample: "10:04", bytes: 200, want: Accepted, peak: 600},
		{name: "older than the last sample", sample: "09:59", bytes: 1800, want: NotNewer, peak: 600},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := tracking(DefaultConfig())
			s.use(resources.Memory, clock(t, "10:00"), 100*mi)
			oom := OOM{Container: app, At: clock(t, "10:05"), Memory: 500 * mi, Limit: 2000 * mi, ID: "one"}
			require.Equal(t, Accepted, s.ObserveOOM(oom))
			require.Equal(t, 600*mi, s.peakOf(t, app))
			require.Equal(t, tc.want, s.Observe(Sample{Container: app, Kind: resources.Memory, At: clock(t, tc.sample), Amount: tc.bytes * mi}))
			for range 2 {
				s.ReviseOOM(oom)
				require.Equal(t, tc.peak*mi, s.peakOf(t, app))
			}
			require.Equal(t, Duplicate, s.ObserveOOM(oom))
			require.Equal(t, NotNewer, s.Observe(Sample{Container: app, Kind: resources.Memory, At: clock(t, "09:58"), Amount: 9000 * mi}))
		})
	}
}
