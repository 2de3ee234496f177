package usage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

const (
	day = 24 * time.Hour
	mi  = resources.Amount(1 << 20)
)

var (
	morning = time.Date(2024, 1, 1, 10, 0, 0, 0, time.UTC)
	app     = ContainerKey{Namespace: "ns", Pod: "p1", Container: "app"}
	appKey  = SeriesKey{Namespace: "ns", Container: "app", Labels: "app=x,h=1"}
)

// clock returns a time of the first day: "10:05" or "10:05:30".
func clock(t testing.TB, text string) time.Time {
	t.Helper()
	if strings.Count(text, ":") == 1 {
		text += ":00"
	}
	at, err := time.Parse(time.DateTime, "2024-01-01 "+text)
	require.NoError(t, err)
	return at
}

func tracking(config StoreConfig) *Store {
	s := NewStore(config)
	s.Track(app, appKey, morning)
	return s
}

func (s *Store) use(kind resources.Kind, at time.Time, a resources.Amount) Reason {
	return s.Observe(Sample{Container: app, Kind: kind, At: at, Amount: a})
}

func (s *Store) peakOf(t testing.TB, c ContainerKey) resources.Amount {
	t.Helper()
	peak, _, ok := s.Peak(c)
	require.True(t, ok)
	return peak
}

func (s *Store) image(series ...Series) ProfileImage {
	p := NewProfile(s.config.Shape)
	s.Profile(&p, series...)
	return p.Image()
}

func TestObserve_MemoryWindows(t *testing.T) {
	s := tracking(DefaultConfig())
	_, _, ok := s.Peak(app)
	require.False(t, ok)
	for _, c := range []struct {
		at      time.Time
		use     resources.Amount
		reason  Reason
		peak    resources.Amount
		ends    time.Time
		purpose string
	}{
		{at: morning, use: 300 * mi, reason: Accepted, peak: 300 * mi, ends: morning.Add(day), purpose: "opens a window"},
		{at: morning.Add(time.Hour), use: 500 * mi, reason: Accepted, peak: 500 * mi, ends: morning.Add(day), purpose: "raises the peak"},
		{
			at: morning.Add(2 * time.Hour), use: 400 * mi, reason: Accepted,
			peak: 500 * mi, ends: morning.Add(day), purpose: "is below the peak",
		},
		{at: morning.Add(90 * time.Minute), use: 900 * mi, reason: NotNewer, peak: 500 * mi, ends: morning.Add(day), purpose: "is late"},
		{
			at: morning.Add(2 * time.Hour), use: 600 * mi, reason: Accepted,
			peak: 600 * mi, ends: morning.Add(day), purpose: "is as old as the last one",
		},
		{
			at: morning.Add(day), use: 100 * mi, reason: Accepted,
			peak: 100 * mi, ends: morning.Add(2 * day), purpose: "opens the next window",
		},
		{
			at: morning.Add(5*day - time.Hour), use: 120 * mi, reason: Accepted,
			peak: 120 * mi, ends: morning.Add(5 * day), purpose: "windows stay aligned to the first",
		},
		{at: morning.Add(5 * day), use: -1, reason: NegativeAmount, peak: 120 * mi, ends: morning.Add(5 * day), purpose: "is negative"},
	} {
		require.Equal(t, c.reason, s.use(resources.Memory, c.at, c.use), c.purpose)
		peak, ends, ok := s.Peak(app)
		require.True(t, ok)
		require.Equal(t, c.peak, peak, c.purpose)
		require.Equal(t, c.ends, ends, c.purpose)
	}
	require.Len(t, s.image(0).Memory.Weights, 3, "one entry a window")
}

func TestObserve_CPUSamplesMustBeNewer(t *testing.T) {
	s := tracking(DefaultConfig())
	require.Equal(t, Accepted, s.use(resources.CPU, morning, 100))
	require.Equal(t, NotNewer, s.use(resources.CPU, morning, 900))
	require.Equal(t, Accepted, s.use(resources.CPU, morning.Add(time.Minute), 200))
	require.Equal(t, NegativeAmount, s.use(resources.CPU, morning.Add(2*time.Minute), -5))
	got := s.image(0)
	require.EqualValues(t, 2, got.Samples)
	require.Equal(t, morning, got.First)
	require.Equal(t, morning.Add(time.Minute), got.Last)
}

func TestObserve_RejectsInvalidSamples(t *testing.T) {
	s := tracking(DefaultConfig())
	stranger := ContainerKey{Namespace: "ns", Pod: "p1", Container: "other"}
	require.Equal(t, UnknownContainer, s.Observe(Sample{Container: stranger, Kind: resources.CPU, At: morning, Amount: 1}))
	require.Equal(t, UnknownContainer, s.ObserveOOM(OOM{Container: stranger, At: morning, Memory: 1}))
	require.Equal(t, NegativeAmount, s.ObserveOOM(OOM{Container: app, At: morning, Memory: -1}))
	for _, at := range []time.Time{{}, time.Unix(-1, 0), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		require.Equal(t, OutOfRange, s.use(resources.CPU, at, 1), "%v", at)
		require.Equal(t, OutOfRange, s.use(resources.Memory, at, 1), "%v", at)
		require.Equal(t, OutOfRange, s.ObserveOOM(OOM{Container: app, At: at, Memory: 1}), "%v", at)
	}
	require.Equal(t, ProfileImage{}.Samples, s.image(0).Samples)
	require.Empty(t, s.image(0).Memory.Weights)
}

func TestObserveOOM_Sequence(t *testing.T) {
	s := tracking(DefaultConfig())
	yesterday := func(text string) time.Time { return clock(t, text).Add(-day) }
	for _, c := range []struct {
		oom    bool
		at     time.Time
		memory resources.Amount
		reason Reason
		peak   resources.Amount
	}{
		{at: clock(t, "10:00"), memory: 200 * mi, reason: Accepted, peak: 209715200},
		{oom: true, at: clock(t, "10:05"), memory: 256 * mi, reason: Accepted, peak: 373293056}, // + 100 Mi
		{oom: true, at: clock(t, "10:10"), memory: 256 * mi, reason: Accepted, peak: 373293056},
		{at: clock(t, "10:11"), memory: 300 * mi, reason: Accepted, peak: 373293056},
		{oom: true, at: clock(t, "10:20"), memory: 1024 * mi, reason: Accepted, peak: 1288490188}, // · 1.2
		{oom: true, at: clock(t, "10:15"), memory: 2048 * mi, reason: Accepted, peak: 2576980377}, // sets the clock back
		{at: clock(t, "10:16"), memory: 3000 * mi, reason: Accepted, peak: 3145728000},
		{oom: true, at: yesterday("10:15:59"), memory: 9000 * mi, reason: TooOld, peak: 3145728000},
		{oom: true, at: yesterday("10:16"), memory: 9000 * mi, reason: Accepted, peak: 11324620800},
	} {
		var got Reason
		if c.oom {
			got = s.ObserveOOM(OOM{Container: app, At: c.at, Memory: c.memory})
		} else {
			got = s.use(resources.Memory, c.at, c.memory)
		}
		require.Equal(t, c.reason, got, "%v", c)
		require.Equal(t, c.peak, s.peakOf(t, app), "%v", c)
	}
}

func TestObserveOOM_UsesHigherOfReportAndUsage(t *testing.T) {
	s := tracking(DefaultConfig())
	s.use(resources.Memory, morning, 400*mi)
	require.Equal(t, Accepted, s.ObserveOOM(OOM{Container: app, At: morning, Memory: 0}), "a container without request")
	require.Equal(t, 500*mi, s.peakOf(t, app))
}

func TestObserveOOM_OpensWindow(t *testing.T) {
	s := tracking(DefaultConfig())
	require.Equal(t, Accepted, s.ObserveOOM(OOM{Container: app, At: morning, Memory: 500 * mi}))
	require.Equal(t, 600*mi, s.peakOf(t, app))
	s.use(resources.Memory, morning, 100*mi)
	require.Equal(t, 600*mi, s.peakOf(t, app))
}

// The reference recommender loses every later peak and OOM kill of such a window.
func TestObserve_ZeroWindowAcceptsLaterPeaks(t *testing.T) {
	s := tracking(DefaultConfig())
	s.use(resources.Memory, morning, 0)
	require.Zero(t, s.peakOf(t, app))
	s.use(resources.Memory, morning.Add(time.Hour), 800*mi)
	require.Equal(t, 800*mi, s.peakOf(t, app))
	s.ObserveOOM(OOM{Container: app, At: morning.Add(2 * time.Hour), Memory: 800 * mi})
	require.Equal(t, 960*mi, s.peakOf(t, app))
	require.Len(t, s.image(0).Memory.Weights, 1, "the 0 is replaced like any other peak")
}

func TestSetRules_OverridesDefaults(t *testing.T) {
	s := tracking(DefaultConfig())
	own := Rules{OOMRatio: 2, OOMMinBump: 0, Interval: time.Hour, Count: 2}
	s.SetRules(0, own)
	s.use(resources.Memory, morning, 100*mi)
	_, ends, _ := s.Peak(app)
	require.Equal(t, morning.Add(time.Hour), ends)
	s.ObserveOOM(OOM{Container: app, At: morning, Memory: 100 * mi})
	require.Equal(t, 200*mi, s.peakOf(t, app))

	s.SetRules(0, s.Rules()) // the override is removed: the default is back
	s.ObserveOOM(OOM{Container: app, At: morning, Memory: 500 * mi})
	require.Equal(t, 600*mi, s.peakOf(t, app))
	s.use(resources.Memory, morning.Add(time.Hour), 100*mi)
	_, ends, _ = s.Peak(app)
	require.Equal(t, morning.Add(time.Hour+day), ends)
}

func TestSetRules_NormalizesInvalidRules(t *testing.T) {
	s := NewStore(StoreConfig{Shape: NewProfileShape(day, day)})
	s.Track(app, appKey, morning)
	for _, r := range []Rules{{}, {Interval: -day, Count: -1, OOMMinBump: -5}, {Interval: 1 << 62, Count: 1 << 62, OOMRatio: 1e300}} {
		s.SetRules(0, r)
		require.Equal(t, Accepted, s.use(resources.Memory, morning, 100*mi))
		require.Equal(t, Accepted, s.ObserveOOM(OOM{Container: app, At: morning, Memory: 100 * mi}))
		require.GreaterOrEqual(t, s.peakOf(t, app), 100*mi)
		s.Expire(morning, func(Series) bool { return true })
		require.Equal(t, 1, s.Len())
	}
}

func TestRules_NormalizedKeepsMinimum(t *testing.T) {
	r := Rules{OOMRatio: 1, OOMMinBump: 1, Interval: time.Second, Count: 1}
	require.Equal(t, r, r.Normalized())
	require.Equal(t, time.Second, r.Age())
	for _, count := range []int64{0, -1} {
		require.Equal(t, time.Hour, Rules{Interval: time.Hour, Count: count}.Age(), "history lasts for one interval at least")
	}
}

func TestTrack_PodsWithEqualLabelsShareSeries(t *testing.T) {
	s := tracking(DefaultConfig())
	twin := ContainerKey{Namespace: "ns", Pod: "p2", Container: "app"}
	series, created := s.Track(twin, appKey, morning)
	require.False(t, created)
	require.Equal(t, Series(0), series)
	s.use(resources.Memory, morning, 100*mi)
	s.Observe(Sample{Container: twin, Kind: resources.Memory, At: morning, Amount: 900 * mi})
	require.Equal(t, 100*mi, s.peakOf(t, app), "each has its own window")
	require.InDelta(t, 2*1.33484, s.image(0).Memory.Total, 1e-5, "both peaks are in the series")
	require.Equal(t, 1, s.Len())
	require.Equal(t, 2, s.Containers())
}

func TestTrack_RelabelledPodFeedsAnotherSeries(t *testing.T) {
	s := tracking(DefaultConfig())
	s.use(resources.Memory, morning, 500*mi)
	s.use(resources.CPU, morning, 100)
	other := SeriesKey{Namespace: "ns", Container: "app", Labels: "app=y"}
	series, created := s.Track(app, other, morning)
	require.True(t, created)
	before := s.image(0)
	s.use(resources.Memory, morning.Add(time.Hour), 100*mi)
	require.Equal(t, NotNewer, s.use(resources.CPU, morning, 100), "the clock goes on")
	require.Equal(t, before, s.image(0), "what was seen under the old labels stays there")
	require.Len(t, s.image(series).Memory.Weights, 1)
	got, ok := s.SeriesOf(app)
	require.True(t, ok)
	require.Equal(t, series, got)
	require.Equal(t, other, s.Key(got))
}

func TestForget_KeepsSeries(t *testing.T) {
	s := tracking(DefaultConfig())
	s.use(resources.CPU, morning, 100)
	require.True(t, s.Forget(app))
	require.False(t, s.Forget(app))
	require.Equal(t, UnknownContainer, s.use(resources.CPU, morning.Add(1), 100))
	_, ok := s.SeriesOf(app)
	require.False(t, ok)
	require.Equal(t, 1, s.Len(), "the history outlives the container")
	series, created := s.Track(app, appKey, morning)
	require.False(t, created)
	require.EqualValues(t, 1, s.image(series).Samples)
	_, _, ok = s.Peak(app)
	require.False(t, ok, "a new instance has no window")
}

func TestRemovePeaks_ExcludesOpenWindows(t *testing.T) {
	s := tracking(DefaultConfig())
	s.use(resources.Memory, morning, 300*mi)
	s.use(resources.Memory, morning.Add(day), 700*mi)
	p := NewProfile(s.config.Shape)
	s.Profile(&p, 0)
	s.RemovePeaks(&p, morning.Add(2*day), 0)
	require.Equal(t, s.image(0), p.Image(), "that window is over")
	s.RemovePeaks(&p, morning.Add(2*day-1), 0)
	require.Equal(t, map[int]uint32{19: 10000}, p.Image().Memory.Weights)
	require.Len(t, s.image(0).Memory.Weights, 2, "the series is as before")
}

func TestExpire_DropsOldSeries(t *testing.T) {
	yes, no := func(Series) bool { return true }, func(Series) bool { return false }
	s := NewStore(DefaultConfig())
	for i, name := range []string{"sampled", "silent", "pointless", "fed"} {
		c, key := ContainerKey{Namespace: "ns", Pod: name, Container: "app"}, SeriesKey{Namespace: "ns", Container: "app", Labels: name}
		series, created := s.Track(c, key, morning)
		require.True(t, created)
		require.Equal(t, Series(i), series)
	}
	s.Observe(Sample{
		Container: ContainerKey{Namespace: "ns", Pod: "sampled", Container: "app"},
		Kind:      resources.CPU, At: morning.Add(day), Amount: 5,
	})
	s.Observe(Sample{
		Container: ContainerKey{Namespace: "ns", Pod: "fed", Container: "app"},
		Kind:      resources.Memory, At: morning.Add(day), Amount: 5 * mi,
	})
	for _, name := range []string{"sampled", "silent", "pointless"} {
		s.Forget(ContainerKey{Namespace: "ns", Pod: name, Container: "app"})
	}

	s.newest = morning.Add(100 * day).UnixNano() // of other series
	require.Empty(t, s.Expire(morning.Add(8*day-1), yes))
	require.Equal(t, []Series{2}, s.Expire(morning, func(x Series) bool { return x != 2 }))
	version := s.Version(3)
	require.Equal(t, []Series{1}, s.Expire(morning.Add(8*day), yes), "created 8 days ago and never sampled")
	require.Greater(t, s.Version(3), version, "its history is another one now")
	require.Empty(t, s.image(3).Memory.Weights, "a series that is fed is emptied")
	fed := ContainerKey{Namespace: "ns", Pod: "fed", Container: "app"}
	s.Observe(Sample{Container: fed, Kind: resources.Memory, At: morning.Add(day), Amount: 3 * mi})
	require.Equal(t, 3*mi, s.peakOf(t, fed), "and begins anew")
	require.Empty(t, s.Expire(morning.Add(9*day-1), no), "CPU samples of the last 8 days keep a series")
	require.Equal(t, []Series{0}, s.Expire(morning.Add(9*day), no))
	require.Equal(t, 1, s.Len())
	_, ok := s.Find(SeriesKey{Namespace: "ns", Container: "app", Labels: "sampled"})
	require.False(t, ok)

	s.SetRules(3, Rules{Interval: time.Hour, Count: 2})
	s.Forget(fed)
	require.Equal(t, []Series{3}, s.Expire(morning.Add(20*day), yes), "by its own rules")
}

func TestExpire_ReusesSlots(t *testing.T) {
	s := NewStore(DefaultConfig())
	now := morning
	for i := range 1000 {
		now = now.Add(time.Hour)
		job := ContainerKey{Namespace: "ns", Pod: fmt.Sprint("job-", i), Container: "app"}
		s.Track(job, SeriesKey{Namespace: "ns", Container: "app", Labels: fmt.Sprint("job=", i)}, now)
		s.Observe(Sample{Container: job, Kind: resources.CPU, At: now, Amount: 5})
		s.Forget(job)
		s.Expire(now, func(Series) bool { return true })
	}
	require.LessOrEqual(t, s.Len(), 8*24)
	require.LessOrEqual(t, int(s.series.Len()), 8*24+1)
	require.EqualValues(t, 1, s.containers.Len())
	n := 0
	for series, key := range s.All() {
		n++
		found, ok := s.Find(key)
		require.True(t, ok)
		require.Equal(t, series, found)
		require.Equal(t, key, s.Key(series))
	}
	require.Equal(t, s.Len(), n)
	for range s.All() {
		break
	}
}

func TestStore_ContainersFeedOneSeries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewStore(DefaultConfig())
		want := map[ContainerKey]SeriesKey{}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			c := ContainerKey{
				Namespace: "ns",
				Pod:       rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pod"),
				Container: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "container"),
			}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				_, known := want[c]
				require.Equal(t, known, s.Forget(c))
				delete(want, c)
			case 1:
				s.Expire(morning, func(Series) bool { return false })
			default:
				labels := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "labels")
				want[c] = SeriesKey{Namespace: "ns", Container: c.Container, Labels: labels}
				series, _ := s.Track(c, want[c], morning)
				require.Equal(t, want[c], s.Key(series))
			}
		}
		got := map[ContainerKey]SeriesKey{}
		for series, key := range s.All() {
			for slot := s.series.At(series).first; slot != none; slot = s.containers.At(slot).next {
				c := s.key(s.containers.At(slot))
				require.NotContains(t, got, c)
				found, known := s.slot(c)
				require.True(t, known)
				require.Equal(t, slot, found)
				got[c] = key
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, len(want), s.Containers())
	})
}

func TestSeries_OnePeakPerWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := DefaultConfig()
		s := tracking(config)
		want := NewProfile(config.Shape)
		at := morning // time of the first sample, which aligns the windows
		peaks := map[int]resources.Amount{}
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			use := resources.Amount(rapid.IntRange(0, 4000).Draw(t, "MiB")) * mi
			require.Equal(t, Accepted, s.use(resources.Memory, at, use))
			w := int(at.Sub(morning) / day)
			peaks[w] = max(peaks[w], use)
			at = at.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "hours")) * time.Hour)
		}
		for w := range int(at.Sub(morning)/day) + 1 {
			if peak, ok := peaks[w]; ok {
				want.AddPeak(float64(peak), morning.Add(time.Duration(w+1)*day))
			}
		}
		got := s.image(0).Memory.Weights
		require.Len(t, got, len(want.Image().Memory.Weights))
		for bucket, weight := range want.Image().Memory.Weights {
			require.InDelta(t, weight, got[bucket], 1)
		}
		require.InEpsilon(t, want.Image().Memory.Total, s.image(0).Memory.Total, 1e-9)
	})
}

func TestRestoreWindow_CountsPeakOnce(t *testing.T) {
	day := 24 * time.Hour
	before := NewStore(DefaultConfig())
	series, _ := before.Track(app, SeriesKey{Namespace: "ns", Container: "app", Labels: "a=b"}, morning)
	before.Observe(Sample{Container: app, Kind: resources.Memory, At: morning, Amount: 300 * mi})
	before.Observe(Sample{Container: app, Kind: resources.Memory, At: morning.Add(time.Hour), Amount: 700 * mi})
	for range 3 {
		after := NewStore(DefaultConfig())
		after.Track(app, SeriesKey{Namespace: "ns", Container: "app", Labels: "a=b"}, morning)
		for c, w := range before.Windows(morning.Add(2*time.Hour), series) {
			require.Equal(t, morning.Add(day), w.End)
			require.True(t, after.RestoreWindow(c, w))
			require.False(t, after.RestoreWindow(c, w), "it has a window now")
		}
		was, is := NewProfile(before.config.Shape), NewProfile(before.config.Shape)
		before.Profile(&was, series)
		after.Profile(&is, 0)
		require.Equal(t, was.Memory.Image(), is.Memory.Image())
		require.Equal(t, Accepted, after.Observe(Sample{Container: app, Kind: resources.Memory, At: morning.Add(3 * time.Hour), Amount: 500 * mi}), "below the peak")
		after.RemovePeaks(&is, morning.Add(3*time.Hour), 0)
		require.True(t, is.Memory.Empty(), "the peak is the open window's")
		before = after
	}
	for range before.Windows(morning.Add(day), 0) {
		require.Fail(t, "the window has ended")
	}
	stranger := ContainerKey{Namespace: "ns", Pod: "stranger", Container: "app"}
	require.False(t, before.RestoreWindow(stranger, Window{End: morning.Add(day), Usage: 1}))
}
