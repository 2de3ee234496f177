package rollout

import (
	"fmt"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Schedule restricts changes of running pods to time windows in a time zone.
type Schedule struct {
	Windows []Window       // daily windows, none is the whole day
	Days    []time.Weekday // days on which windows open, none is every day
	Zone    *time.Location // nil is unknown and the schedule never opens
}

// Window is a part of a day. An End before Start is on the next day; equal to Start never opens.
type Window struct {
	Start Clock // first minute
	End   Clock // first minute after the window
}

// Clock is a time of day in minutes since midnight, 0 to 1439.
type Clock int

// ParseClock parses a time of day as HH:MM, from 00:00 to 23:59.
func ParseClock(text string) (Clock, error) {
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, fmt.Errorf("time of the day %q: must be HH:MM, from 00:00 to 23:59", text)
	}
	return clockOf(t), nil
}

func clockOf(t time.Time) Clock { return Clock(t.Hour()*60 + t.Minute()) }

// Open reports whether pods may change at a time. A window over midnight belongs to its first day.
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
		return s.opensOn(today)
	}
	return slices.ContainsFunc(s.Windows, func(w Window) bool {
		if w.Start <= w.End {
			return s.opensOn(today) && w.Start <= clock && clock < w.End
		}
		return s.opensOn(today) && w.Start <= clock || s.opensOn(yesterday) && clock < w.End
	})
}

func (s *Schedule) opensOn(day time.Weekday) bool {
	return len(s.Days) == 0 || slices.Contains(s.Days, day)
}

// openingHorizon bounds NextOpening: a weekly window that a clock change skips opens a week later.
const openingHorizon = 15 * 24 * time.Hour

// NextOpening returns the first time from at on with an open schedule, or false if there is none.
func (s *Schedule) NextOpening(at time.Time) (time.Time, bool) {
	if s == nil || s.Zone == nil {
		return at, s == nil
	}
	// Between two clock changes all days have 24 hours.
	for from := at; from.Before(at.Add(openingHorizon)); {
		if s.Open(from) {
			return from, true
		}
		local := from.In(s.Zone)
		_, until := local.ZoneBounds()
		if until.IsZero() || until.After(at.Add(openingHorizon)) {
			until = at.Add(openingHorizon)
		}
		if first, found := s.firstStart(local, until); found {
			return first.In(s.Zone), true
		}
		from = until
	}
	return time.Time{}, false
}

// firstStart returns the first opening between two times, without a clock change between them.
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

// Savings sums up request changes, with growth separate so that it does not hide the decreases.
type Savings struct {
	Requested resources.List // current requests
	Less      resources.List // decrease where the recommendation is below
	More      resources.List // increase where the recommendation is above
}

// Add adds a container with replicas pods. Kinds without request or recommendation do not count.
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

// Prices are the hourly costs of resources, in any currency.
type Prices struct {
	Core float64
	GiB  float64
}

// DefaultPrices are undiscounted cloud prices in US dollars.
var DefaultPrices = Prices{Core: 0.031, GiB: 0.004}

// hoursOfMonth is the mean number of hours in a month.
const hoursOfMonth = 730

// Monthly returns the monthly cost of resources.
func (p Prices) Monthly(list resources.List) float64 {
	cores, gib := float64(list.Value(resources.CPU))/1000, float64(list.Value(resources.Memory))/(1<<30)
	return (cores*p.Core + gib*p.GiB) * hoursOfMonth
}
