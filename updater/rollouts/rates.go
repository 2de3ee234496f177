package rollouts

import (
	"maps"
	"math"
	"slices"
)

// runLabels differ between the runs of a container, before and after a restart. What else
// differs shows that several scrapes have it, or that it is another container of that name,
// as in a second cluster.
var runLabels = []string{"id", "name", "image", counterLabel}

// rates are the rates of the counters of a container. Each run has series of its own.
type rates struct {
	scrape    map[string]string // the labels that are no runLabels
	ambiguous bool              // they are not the same in all series

	periods, throttled rate
	waiting            rate // of all runs
	whole              rate // of those that were there when the window began
}

// rate is the sum of the rates of one counter.
type rate struct {
	sum  float64
	runs int
}

func (r *rates) add(labels map[string]string, value float64) {
	scrape := maps.Clone(labels)
	maps.DeleteFunc(scrape, func(name, _ string) bool { return slices.Contains(runLabels, name) })
	if r.scrape == nil {
		r.scrape = scrape
	}
	r.ambiguous = r.ambiguous || !maps.Equal(r.scrape, scrape)
	if c := r.of(labels[counterLabel]); c != nil {
		c.sum += value
		c.runs++
	}
}

// of returns the rate of a counter, nil for one that was not asked for.
func (r *rates) of(counter string) *rate {
	switch counter {
	case periodsMetric:
		return &r.periods
	case throttledMetric:
		return &r.throttled
	case waitingMetric:
		return &r.waiting
	case wholeWaiting:
		return &r.whole
	}
	return nil
}

// share returns what is known of the container. Throttling is a ratio, and right for several
// runs together. The time that two runs waited may be the same time, and a part of the window
// has a part of it, so it is known of a single run that was there all the time.
func (r *rates) share() Share {
	s := Share{math.NaN(), math.NaN()}
	if r.ambiguous {
		return s
	}
	if r.periods.runs == r.throttled.runs {
		s.Throttled = part(r.throttled.sum / r.periods.sum)
	}
	if r.waiting.runs == 1 && r.whole.runs == 1 {
		s.Waiting = part(r.whole.sum)
	}
	return s
}

// part returns a share, NaN for what is none. Rates are extrapolated, so that a share may come
// out a little larger than 1.
func part(value float64) float64 {
	const most = 1.25
	if value < 0 || value > most {
		return math.NaN()
	}
	return min(value, 1)
}
