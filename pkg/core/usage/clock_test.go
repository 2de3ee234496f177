package usage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestVersion_IncreasesWithEachChange(t *testing.T) {
	s := NewStore(DefaultConfig())
	series, _ := s.Track(app, SeriesKey{"ns", "app", "a=b"}, morning)
	last := s.Version(series)
	grows := func(what string, changes bool) {
		t.Helper()
		require.Equal(t, changes, s.Version(series) > last, what)
		last = s.Version(series)
	}
	s.Observe(Sample{Container: app, Kind: resources.CPU, At: morning, Amount: 100})
	grows("CPU sample", true)
	s.Observe(Sample{Container: app, Kind: resources.CPU, At: morning, Amount: 100})
	grows("refused sample", false)
	s.Observe(Sample{Container: app, Kind: resources.Memory, At: morning, Amount: 100 * mi})
	grows("first peak", true)
	s.Observe(Sample{Container: app, Kind: resources.Memory, At: morning.Add(time.Minute), Amount: 90 * mi})
	grows("use below the peak", false)
	s.ObserveOOM(OOM{Container: app, At: morning.Add(time.Minute), Memory: 100 * mi})
	grows("kill", true)
	s.Forget(app)
	s.newest = morning.Add(30 * day).UnixNano()
	s.Expire(morning.Add(30*24*time.Hour), func(Series) bool { return true })
	again, _ := s.Track(app, SeriesKey{"ns", "app", "c=d"}, morning)
	require.Equal(t, series, again)
	grows("another series in the slot", true)
}

func TestExpire_ToleratesClockJumps(t *testing.T) {
	s := tracking(DefaultConfig())
	yes := func(Series) bool { return true }
	other := ContainerKey{"ns", "p2", "app"}
	s.Track(other, SeriesKey{"ns", "app", "app=y"}, morning)
	s.use(resources.CPU, morning, 100)
	s.use(resources.Memory, morning, 100*mi)
	s.Forget(app)
	before := s.image(0)
	for _, jump := range []time.Duration{365 * day, -365 * day} {
		require.Empty(t, s.Expire(morning.Add(jump), yes))
		require.Equal(t, before, s.image(0))
		late := ContainerKey{"ns", jump.String(), "app"}
		s.Track(late, SeriesKey{"ns", "app", jump.String()}, morning.Add(jump))
		s.Forget(late)
	}
	require.Equal(t, morning.Add(time.Minute), s.CredibleTime(morning.Add(time.Minute)))
	s.Observe(Sample{Container: other, Kind: resources.CPU, At: morning.Add(8 * day), Amount: 100})
	require.Len(t, s.Expire(morning.Add(8*day), yes), 2, "time has passed: samples say so")
	s.Observe(Sample{Container: other, Kind: resources.CPU, At: morning.Add(9 * day), Amount: 100})
	require.Len(t, s.Expire(morning.Add(9*day), yes), 1, "what began while the clock was ahead goes, too")
	require.Equal(t, 1, s.Len())
}

func TestStore_Span(t *testing.T) {
	s := tracking(DefaultConfig())
	series, _ := s.SeriesOf(app)
	first, last, samples := s.Span(series)
	require.True(t, first.IsZero() && last.IsZero())
	require.Zero(t, samples)
	for _, at := range []string{"10:05", "10:06", "11:00"} {
		require.Equal(t, Accepted, s.use(resources.CPU, clock(t, at), 5))
	}
	first, last, samples = s.Span(series)
	require.True(t, first.Equal(clock(t, "10:05")))
	require.True(t, last.Equal(clock(t, "11:00")))
	require.EqualValues(t, 3, samples)
}

func TestRestoreWindow_AcceptsSamplesAfterLengthChange(t *testing.T) {
	for _, tc := range []struct {
		name   string
		length time.Duration
	}{
		{name: "shorter", length: time.Hour},
		{name: "longer", length: 7 * 24 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewStore(DefaultConfig())
			c := ContainerKey{Namespace: "ns", Pod: "p", Container: "a"}
			series, _ := s.Track(c, SeriesKey{Namespace: "ns", Container: "a"}, time.Unix(1e9, 0))
			rules := s.Rules()
			rules.Interval = tc.length
			s.SetRules(series, rules)
			now := time.Unix(1e9, 0)
			require.True(t, s.RestoreWindow(c, Window{End: now.Add(20 * time.Hour), Usage: 100, OOM: none}))
			require.Equal(t, Accepted, s.Observe(Sample{Container: c, Kind: resources.Memory, At: now, Amount: 50}))
			require.Equal(t, Accepted, s.ObserveOOM(OOM{Container: c, At: now.Add(time.Second), Memory: 100, ID: "1"}))
			_, end, _ := s.Peak(c)
			require.True(t, end.Equal(now.Add(20*time.Hour)), "it goes on to its end")
		})
	}
}

func TestObserve_ForgetsCachedPod(t *testing.T) {
	s := NewStore(DefaultConfig())
	key := func(container string) ContainerKey { return ContainerKey{"ns", "p", container} }
	at := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	observe := func(container string) Reason {
		at = at.Add(time.Minute)
		return s.Observe(Sample{Container: key(container), At: at, Amount: 100})
	}
	track := func(container string) { s.Track(key(container), SeriesKey{"ns", container, "app=p"}, at) }
	require.Equal(t, UnknownContainer, observe("a"))
	track("a")
	require.Equal(t, Accepted, observe("a"))
	track("b")
	require.Equal(t, Accepted, observe("b"), "a container that joined")
	require.True(t, s.Forget(key("b")))
	require.Equal(t, UnknownContainer, observe("b"))
	require.Equal(t, Accepted, observe("a"))
	require.True(t, s.Forget(key("a")))
	require.Equal(t, UnknownContainer, observe("a"))
	require.Equal(t, UnknownContainer, s.Observe(Sample{At: at}), "no name is no pod")
}
