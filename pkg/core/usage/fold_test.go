package usage

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestRekey(t *testing.T) {
	s := tracking(DefaultConfig())
	s.use(resources.CPU, morning, 100)
	s.use(resources.Memory, morning, 300*mi)
	common := SeriesKey{"ns", "app", "app=x"}
	_, ok := s.Rekey(0, common)
	require.False(t, ok, "it is fed")
	s.Forget(app)
	_, ok = s.Rekey(0, appKey)
	require.False(t, ok, "that is itself")
	before, version := s.image(0), s.Version(0)
	into, ok := s.Rekey(0, common)
	require.True(t, ok)
	require.Equal(t, before, s.image(into))
	require.Equal(t, common, s.Key(into))
	require.Greater(t, s.Version(into), version)
	_, found := s.Find(appKey)
	require.False(t, found)

	s.Track(app, appKey, morning.Add(day))
	s.use(resources.CPU, morning.Add(day), 300)
	s.use(resources.Memory, morning.Add(day), 800*mi)
	from, _ := s.SeriesOf(app)
	s.Forget(app)
	before, version = s.image(from, into), s.Version(into)
	same, ok := s.Rekey(from, common)
	require.True(t, ok)
	require.Greater(t, s.Version(into), version, "what was made of its former history is out of date")
	require.Equal(t, into, same)
	require.Equal(t, before, s.image(into))
	require.EqualValues(t, 2, s.image(into).Samples)
	require.Equal(t, 1, s.Len())
	again, created := s.Track(app, appKey, morning)
	require.True(t, created)
	require.Equal(t, from, again, "the slot is used again")
}

// Without CPU samples, peaks must not expire early after a rollout.
func TestRekey_KeepsCreationTime(t *testing.T) {
	common := SeriesKey{"ns", "app", "app=x"}
	later := morning.Add(day)
	for name, c := range map[string]struct {
		into, from time.Time
		kind       resources.Kind
		want       time.Time
	}{
		"younger":                     {morning, later, resources.CPU, morning},
		"older":                       {later, morning, resources.CPU, morning},
		"younger, without CPU sample": {morning, later, resources.Memory, later},
		"older, without CPU sample":   {later, morning, resources.Memory, later},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStore(DefaultConfig())
			old := ContainerKey{"ns", "old", "app"}
			into, _ := s.Track(old, common, c.into)
			from, _ := s.Track(app, appKey, c.from)
			require.Equal(t, Accepted, s.use(c.kind, later, 100))
			require.True(t, s.Forget(app))
			_, folded := s.Rekey(from, common)
			require.True(t, folded)
			require.Equal(t, c.want, s.CreatedAt(into))
		})
	}
}

func TestImport_JoinsOpenWindows(t *testing.T) {
	for name, c := range map[string]struct {
		ours, theirs   resources.Amount // Mi; negative = no window
		gap            time.Duration    // from the start of theirs to the start of ours
		peaks          int
		peak           resources.Amount
		theirsPrevails bool // its window continues
	}{
		"theirs is higher":         {300, 700, time.Hour, 1, 700, true},
		"ours is higher":           {700, 300, time.Hour, 1, 700, false},
		"theirs is over":           {300, 700, day, 2, 300, false},
		"theirs ended within ours": {300, 700, day - time.Minute, 2, 300, false},
		"only theirs":              {-1, 700, time.Hour, 1, 700, true},
		"only ours":                {300, -1, time.Hour, 1, 300, false},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := tracking(DefaultConfig()), tracking(DefaultConfig())
			began := morning.Add(c.gap)
			if c.theirs >= 0 {
				require.Equal(t, Accepted, theirs.use(resources.Memory, morning, c.theirs*mi))
			}
			require.Equal(t, Accepted, theirs.use(resources.CPU, morning, 100))
			if c.ours >= 0 {
				require.Equal(t, Accepted, ours.use(resources.Memory, began, c.ours*mi))
				require.Equal(t, Accepted, ours.use(resources.Memory, began.Add(2*time.Minute), 1*mi))
			}
			version := ours.Version(0)
			require.Equal(t, Series(0), ours.Import(theirs, 0, began))
			require.Greater(t, ours.Version(0), version)
			require.Len(t, ours.image(0).Memory.Weights, c.peaks)
			require.EqualValues(t, 1, ours.image(0).Samples)
			peak, end, ok := ours.Peak(app)
			require.True(t, ok)
			require.Equal(t, c.peak*mi, peak)
			if c.theirsPrevails {
				require.Equal(t, morning.Add(day), end)
			} else {
				require.Equal(t, began.Add(day), end)
			}
			p := NewProfile(ours.config.Shape)
			ours.Profile(&p, 0)
			ours.RemovePeaks(&p, end.Add(-1), 0)
			require.Len(t, p.Image().Memory.Weights, c.peaks-1, "the open one is known to be in the series")
			require.Equal(t, NotNewer, ours.use(resources.CPU, morning, 100), "that sample counts already")
		})
	}
}

// Consecutive windows have no gap, so one store may have the window after the last window of the
// other.
func TestImport_KeepsPeakOfPreviousWindow(t *testing.T) {
	ours, theirs := tracking(DefaultConfig()), tracking(DefaultConfig())
	ours.use(resources.Memory, morning, 300*mi)
	theirs.use(resources.Memory, morning, 0)
	theirs.use(resources.Memory, morning.Add(day), 700*mi)
	ours.Import(theirs, 0, morning)
	require.Len(t, ours.image(0).Memory.Weights, 3)
	peak, end, _ := ours.Peak(app)
	require.Equal(t, 700*mi, peak)
	require.Equal(t, morning.Add(2*day), end)
}

func TestImport_KeepsNeedAfterOOMKill(t *testing.T) {
	for name, oursWasKilled := range map[string]bool{"in our window": true, "in theirs": false} {
		t.Run(name, func(t *testing.T) {
			killed, other := tracking(DefaultConfig()), tracking(DefaultConfig())
			require.Equal(t, Accepted, killed.ObserveOOM(OOM{Container: app, At: morning, Memory: 500 * mi}))
			other.use(resources.Memory, morning.Add(time.Hour), 200*mi)
			ours, theirs := other, killed
			if oursWasKilled {
				ours, theirs = killed, other
			}
			ours.Import(theirs, 0, morning)
			require.Equal(t, 600*mi, ours.peakOf(t, app))
			require.Len(t, ours.image(0).Memory.Weights, 1)
		})
	}
}

// Samples observed by another store show that the clock has not jumped.
func TestImport_AdvancesCredibleTime(t *testing.T) {
	ours, theirs := NewStore(DefaultConfig()), tracking(DefaultConfig())
	theirs.use(resources.CPU, morning, 100)
	ours.Import(theirs, 0, morning)
	require.Equal(t, morning.Add(time.Hour), ours.CredibleTime(morning.Add(day)))
	older := tracking(DefaultConfig())
	older.use(resources.CPU, morning.Add(-day), 100)
	ours.Import(older, 0, morning)
	require.Equal(t, morning.Add(time.Hour), ours.CredibleTime(morning.Add(day)), "an older one takes nothing back")
}

func TestImport_AddsMissingSeries(t *testing.T) {
	ours, theirs := NewStore(DefaultConfig()), tracking(DefaultConfig())
	theirs.use(resources.CPU, morning, 100)
	theirs.use(resources.Memory, morning, 100*mi)
	series := ours.Import(theirs, 0, morning)
	require.Equal(t, theirs.image(0), ours.image(series))
	require.Zero(t, ours.Containers())
	require.EqualValues(t, 1, theirs.image(0).Samples, "the other store is as before")
}

func TestExpire_ReleasesMemory(t *testing.T) {
	s := NewStore(DefaultConfig())
	names := func(i int) (ContainerKey, SeriesKey) {
		return ContainerKey{"ns", fmt.Sprint("p", i), "app"}, SeriesKey{"ns", "app", fmt.Sprint("pod=", i/2)}
	}
	stays := func(i int) bool { return i < 200 && i%100 <= 1 }
	for i := range 1000 {
		c, key := names(i)
		s.Track(c, key, morning)
		s.Observe(Sample{Container: c, Kind: resources.Memory, At: morning, Amount: resources.Amount(i) * mi})
	}
	for i := range 1000 {
		if c, _ := names(i); !stays(i) {
			s.Forget(c)
		}
	}
	version := s.Version(999 / 2)
	s.Expire(morning, func(Series) bool { return false })
	require.Equal(t, 4, int(s.containers.Len()))
	require.Equal(t, 51, int(s.series.Len()))
	for i := range 1000 {
		c, key := names(i)
		series, known := s.SeriesOf(c)
		require.Equal(t, stays(i), known)
		if known {
			require.Equal(t, key, s.Key(series))
			peak, _, ok := s.Peak(c)
			require.False(t, ok && peak != resources.Amount(i)*mi, "an emptied series has no peaks")
		}
	}
	last := Series(0)
	for i := range 1000 {
		c, key := names(i)
		series, _ := s.Track(c, key, morning)
		last = max(last, series)
	}
	require.Greater(t, s.Version(last), version, "versions go on")
	require.Equal(t, 500, s.Len())
}

func TestDropSeries_RequiresUnfedSeries(t *testing.T) {
	s := NewStore(DefaultConfig())
	key := ContainerKey{"ns", "p", "a"}
	series, _ := s.Track(key, SeriesKey{"ns", "a", "app=x"}, morning)
	require.False(t, s.DropSeries(series), "the container feeds it")
	require.Equal(t, 1, s.Len())
	version := s.Version(series)
	s.Forget(key)
	require.True(t, s.DropSeries(series))
	require.Zero(t, s.Len())
	again, created := s.Track(key, SeriesKey{"ns", "a", "app=x"}, morning)
	require.True(t, created)
	require.Equal(t, series, again, "the slot is used again")
	require.Greater(t, s.Version(again), version, "and is not taken for what it was")
}
