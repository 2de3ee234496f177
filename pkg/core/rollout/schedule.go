package rollout

import (
	"fmt"
	"slices"
	"time"
)

// Schedule says when running pods may be changed, in the time of a zone.
type Schedule struct {
	Windows []Window       // of each day; none: the whole day
	Days    []time.Weekday // on which windows open; none: every day
	Zone    *time.Location // nil: not known, and the schedule is never open
}

// Window is a part of a day. An End before Start is on the next day; with an End equal to
// Start it is never open.
type Window struct {
	Start Clock // the first minute
	End   Clock // the first minute after it
}

// Clock is a time of the day in minutes since midnight, 0 to 1439.
type Clock int

// ParseClock reads a time of the day as HH:MM, from 00:00 to 23:59.
func ParseClock(text string) (Clock, error) {
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, fmt.Errorf("time of the day %q: must be HH:MM, from 00:00 to 23:59", text)
	}
	return clockOf(t), nil
}

func clockOf(t time.Time) Clock { return Clock(t.Hour()*60 + t.Minute()) }

// Open reports whether pods may be changed at a moment. A window over midnight belongs to
// the day on which it opened.
func (s *Schedule) Open(at time.Time) bool {
	if s == nil {
		return true
	}
	if s.Zone == nil {
		return false
	}
	local := at.In(s.Zone)
	clock, today := clockOf(local), local.Weekday()
	yesterday := (today + 6) % 7
	if len(s.Windows) == 0 {
		return s.opens(today)
	}
	return slices.ContainsFunc(s.Windows, func(w Window) bool {
		if w.Start <= w.End {
			return s.opens(today) && w.Start <= clock && clock < w.End
		}
		return s.opens(today) && w.Start <= clock || s.opens(yesterday) && clock < w.End
	})
}

// opens reports whether windows open on a day.
func (s *Schedule) opens(day time.Weekday) bool {
	return len(s.Days) == 0 || slices.Contains(s.Days, day)
}

// ahead is how far NextOpening looks: a weekly window that a change of the clocks skips
// opens a week later.
const ahead = 15 * 24 * time.Hour

// NextOpening returns the first moment from at on at which the schedule is open. It is
// false if there is none.
func (s *Schedule) NextOpening(at time.Time) (time.Time, bool) {
	if s == nil || s.Zone == nil {
		return at, s == nil
	}
	// From one change of the clocks to the next, all days have 24 hours.
	for from := at; from.Before(at.Add(ahead)); {
		if s.Open(from) {
			return from, true
		}
		local := from.In(s.Zone)
		_, until := local.ZoneBounds()
		if until.IsZero() || until.After(at.Add(ahead)) {
			until = at.Add(ahead)
		}
		if first, found := s.firstStart(local, until); found {
			return first.In(s.Zone), true
		}
		from = until
	}
	return time.Time{}, false
}

// firstStart returns the first start of a window between two moments at which the schedule
// is open. The clocks do not change between them.
func (s *Schedule) firstStart(from, until time.Time) (first time.Time, found bool) {
	_, offset := from.Zone()
	fixed := time.FixedZone("", offset)
	year, month, day := from.Date()
	starts := []Clock{0}
	for _, w := range s.Windows {
		starts = append(starts, w.Start)
	}
	for midnight := time.Date(year, month, day, 0, 0, 0, 0, fixed); midnight.Before(until) && !found; midnight = midnight.AddDate(0, 0, 1) {
		for _, start := range starts {
			opening := midnight.Add(time.Duration(start) * time.Minute)
			if opening.After(from) && opening.Before(until) && s.Open(opening) && (!found || opening.Before(first)) {
				first, found = opening, true
			}
		}
	}
	return first, found
}
