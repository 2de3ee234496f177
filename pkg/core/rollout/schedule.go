package rollout

import (
	"fmt"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Schedule says when running pods may be changed, in the time of a zone.
type Schedule struct {
	Windows []Window       // of each day; none: the whole day
	Days    []time.Weekday // on which windows open; none: every day
	Zone    *time.Location // nil: not known, and the schedule is never open
}

// Window is a part of a day. An End before Start is on the next day; with an End equal to Start it is never open.
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

// Open reports whether pods may be changed at a moment. A window over midnight belongs to the day on which it opened.
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

// ahead is how far NextOpening looks: a weekly window that a change of the clocks skips opens a week later.
const ahead = 15 * 24 * time.Hour

// NextOpening returns the first moment from at on at which the schedule is open. It is false if there is none.
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

// Savings is what containers would request less, and more, with their recommendations. The two are apart: what one
// container needs more is no reason to show less of what others save. The zero value is that of no container.
type Savings struct {
	Requested resources.List // now
	Less      resources.List // of that, where a recommendation is below
	More      resources.List // in addition to it, where one is above
}

// Add returns the savings with those of a container that runs in so many pods. Kinds that
// are not requested or not recommended do not count.
func (s Savings) Add(requests, target resources.List, replicas int) Savings {
	for k := range resources.Kind(resources.Kinds) {
		request, requested := requests.Get(k)
		wanted, recommended := target.Get(k)
		if !requested || !recommended {
			continue
		}
		s.Requested = plus(k, s.Requested, request, replicas)
		switch {
		case wanted < request:
			s.Less = plus(k, s.Less, request-wanted, replicas)
		case wanted > request:
			s.More = plus(k, s.More, wanted-request, replicas)
		}
	}
	return s
}

func plus(k resources.Kind, list resources.List, a resources.Amount, replicas int) resources.List {
	times, _ := max(a, 0).Proportion(resources.Amount(max(replicas, 0)), 1)
	return list.With(k, list.Value(k).Add(times))
}

// Prices are what resources cost in an hour, in any currency.
type Prices struct {
	Core float64
	GiB  float64
}

// DefaultPrices are those of a cloud without discount, in US dollars.
var DefaultPrices = Prices{Core: 0.031, GiB: 0.004}

// hoursOfMonth is the mean number of hours of a month.
const hoursOfMonth = 730

// Monthly returns what resources cost in a month.
func (p Prices) Monthly(of resources.List) float64 {
	cores, gib := float64(of.Value(resources.CPU))/1000, float64(of.Value(resources.Memory))/(1<<30)
	return (cores*p.Core + gib*p.GiB) * hoursOfMonth
}
