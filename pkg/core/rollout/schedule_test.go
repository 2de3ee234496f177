package rollout

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func clock(text string) Clock {
	c, err := ParseClock(text)
	if err != nil {
		panic(err)
	}
	return c
}

func window(start, end string) Window { return Window{clock(start), clock(end)} }

func zone(t require.TestingT, name string) *time.Location {
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func TestSchedule_Open(t *testing.T) {
	night := []Window{window("22:00", "06:00")}
	for name, c := range map[string]struct {
		schedule *Schedule
		at       string
		open     bool
	}{
		"no schedule":                        {nil, "2026-03-02T03:00:00Z", true},
		"whole day":                          {&Schedule{Zone: time.UTC}, "2026-03-02T03:00:00Z", true},
		"a zone that is not known":           {&Schedule{}, "2026-03-02T03:00:00Z", false},
		"start is inside":                    {&Schedule{Windows: night, Zone: time.UTC}, "2026-03-02T22:00:00Z", true},
		"last second before":                 {&Schedule{Windows: night, Zone: time.UTC}, "2026-03-02T21:59:59Z", false},
		"end is outside":                     {&Schedule{Windows: night, Zone: time.UTC}, "2026-03-02T06:00:00Z", false},
		"last second":                        {&Schedule{Windows: night, Zone: time.UTC}, "2026-03-02T05:59:59Z", true},
		"of the day before":                  {&Schedule{Windows: night, Days: []time.Weekday{time.Monday}, Zone: time.UTC}, "2026-03-03T05:00:00Z", true},
		"the day before was none":            {&Schedule{Windows: night, Days: []time.Weekday{time.Monday}, Zone: time.UTC}, "2026-03-02T05:00:00Z", false},
		"Sunday's window lasts until Monday": {&Schedule{Windows: night, Days: []time.Weekday{time.Sunday}, Zone: time.UTC}, "2026-03-02T05:00:00Z", true},
		"start equals end":                   {&Schedule{Windows: []Window{window("09:00", "09:00")}, Zone: time.UTC}, "2026-03-02T09:00:00Z", false},
		"the time of the zone counts":        {&Schedule{Windows: night, Zone: zone(t, "Asia/Tokyo")}, "2026-03-02T13:00:00Z", true},
		"the day of the zone counts":         {&Schedule{Days: []time.Weekday{time.Tuesday}, Zone: zone(t, "Asia/Tokyo")}, "2026-03-02T20:00:00Z", true},
		"a second window":                    {&Schedule{Windows: append([]Window{window("09:00", "10:00")}, night...), Zone: time.UTC}, "2026-03-02T23:00:00Z", true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.open, c.schedule.Open(at(c.at))) })
	}
}

func TestSchedule_NextOpening(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for name, c := range map[string]struct {
		schedule    *Schedule
		from, opens string
	}{
		"open now":         {&Schedule{Windows: []Window{window("02:00", "04:00")}, Zone: time.UTC}, "2026-03-02T03:00:00Z", "2026-03-02T03:00:00Z"},
		"today":            {&Schedule{Windows: []Window{window("22:00", "06:00")}, Zone: time.UTC}, "2026-03-02T07:30:15Z", "2026-03-02T22:00:00Z"},
		"the first of two": {&Schedule{Windows: []Window{window("22:00", "06:00"), window("12:00", "13:00")}, Zone: time.UTC}, "2026-03-02T07:30:15Z", "2026-03-02T12:00:00Z"},
		"next week":        {&Schedule{Windows: []Window{window("02:00", "04:00")}, Days: []time.Weekday{time.Monday}, Zone: time.UTC}, "2026-03-02T04:00:00Z", "2026-03-09T02:00:00Z"},
		"whole days":       {&Schedule{Days: []time.Weekday{time.Sunday}, Zone: berlin}, "2026-03-02T04:00:00Z", "2026-03-07T23:00:00Z"},
		// On 29 March 2026 the clocks in Berlin go from 02:00 to 03:00.
		"the first half is skipped": {&Schedule{Windows: []Window{window("02:30", "03:30")}, Zone: berlin}, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		"all of it is skipped":      {&Schedule{Windows: []Window{window("02:30", "02:45")}, Days: []time.Weekday{time.Sunday}, Zone: berlin}, "2026-03-28T12:00:00Z", "2026-04-05T00:30:00Z"},
		// On 25 October 2026 they go from 03:00 to 02:00, so 02:30 occurs twice.
		"it opens twice": {&Schedule{Windows: []Window{window("02:30", "02:45")}, Zone: berlin}, "2026-10-25T00:50:00Z", "2026-10-25T01:30:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			opens, ok := c.schedule.NextOpening(at(c.from))
			require.True(t, ok)
			require.Equal(t, at(c.opens), opens.UTC())
		})
	}
	now := at("2026-03-02T03:00:00Z")
	opens, ok := (*Schedule)(nil).NextOpening(now)
	require.True(t, ok)
	require.Equal(t, now, opens)
	for name, never := range map[string]*Schedule{"zone": {}, "window": {Windows: []Window{window("09:00", "09:00")}, Zone: time.UTC}} {
		_, ok := never.NextOpening(now)
		require.False(t, ok, name)
	}
}

// The expected opening is found minute by minute.
func TestSchedule_NextOpeningIsEarliest(t *testing.T) {
	zones := []*time.Location{time.UTC, zone(t, "Europe/Berlin"), zone(t, "Australia/Lord_Howe"), zone(t, "America/New_York")}
	rapid.Check(t, func(t *rapid.T) {
		s := &Schedule{Zone: rapid.SampledFrom(zones).Draw(t, "zone")}
		for range rapid.IntRange(0, 2).Draw(t, "windows") {
			s.Windows = append(s.Windows, Window{Clock(rapid.IntRange(0, 1439).Draw(t, "start")), Clock(rapid.IntRange(0, 1439).Draw(t, "end"))})
		}
		for range rapid.IntRange(0, 2).Draw(t, "days") {
			s.Days = append(s.Days, time.Weekday(rapid.IntRange(0, 6).Draw(t, "day")))
		}
		begin := rapid.SampledFrom([]string{"2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2026-04-04T10:00:00Z", "2026-06-01T00:00:00Z", "2026-11-01T03:00:00Z"}).Draw(t, "begin")
		from := at(begin).Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "minutes")) * time.Minute)
		opens, ok := s.NextOpening(from)
		for m := from; m.Before(from.Add(9 * 24 * time.Hour)); m = m.Add(time.Minute) {
			if s.Open(m) {
				require.True(t, ok)
				require.True(t, opens.Equal(m), "%s, not %s", m.In(s.Zone), opens)
				return
			}
		}
		require.True(t, !ok || opens.After(from.Add(8*24*time.Hour)))
	})
}

func TestParseClock(t *testing.T) {
	for _, tc := range []struct {
		name string
		text string
		want Clock
	}{
		{name: "midnight", text: "00:00"},
		{name: "leading zeros", text: "06:05", want: 365},
		{name: "last minute", text: "23:59", want: 1439},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseClock(tc.text)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	for _, text := range []string{"", "24:00", "9:00", "09:60", "09:00:00", "-1:00", "0900"} {
		_, err := ParseClock(text)
		require.ErrorContains(t, err, "must be HH:MM", text)
	}
}
