package sketch

import (
	"math"
	"slices"
)

// Quantiles are those of a number of samples.
type Quantiles struct{ P50, P90, P95, P99, Max float64 }

// Habits is what a container used over some days, overall and in each hour of the
// day. Amounts are those of the samples.
type Habits struct {
	Overall    Quantiles
	Hourly     [24]Quantiles // UTC; without samples all 0
	Known      [24]bool      // there are samples of the hour
	Points     int
	Days       float64 // from the first sample to the last
	Confidence float64 // 0 to 1
	Burst      float64 // highest use over the 95th percentile where that is a burst, else 0
}

// What makes a maximum a burst, and how many days give full confidence.
const (
	burstRatio = 3
	sureDays   = 7
)

// NewHabits returns the habits that samples at some seconds since 1970 show. What
// is no number is dropped, but its time counts where it comes first.
func NewHabits(at []int64, use []float64) Habits {
	var h Habits
	var all []float64
	var hourly [24][]float64
	first, last := int64(0), int64(0)
	for i, v := range use {
		if i == 0 {
			first, last = at[0], at[0]
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		first, last = min(first, at[i]), max(last, at[i])
		hour := (at[i]/3600%24 + 24) % 24
		all, hourly[hour] = append(all, v), append(hourly[hour], v)
	}
	if h.Points = len(all); h.Points == 0 {
		return h
	}
	h.Overall = quantiles(all)
	for hour, values := range hourly {
		if h.Known[hour] = len(values) > 0; h.Known[hour] {
			h.Hourly[hour] = quantiles(values)
		}
	}
	h.Days = float64(last-first) / 3600 / 24
	h.Confidence = min(max(min(h.Days, math.Sqrt(float64(h.Points)/24))/sureDays, 0), 1)
	if p95 := h.Overall.P95; p95 > 0 && h.Overall.Max/p95 > burstRatio {
		h.Burst = h.Overall.Max / p95
	}
	return h
}

func quantiles(values []float64) Quantiles {
	slices.Sort(values)
	at := func(q float64) float64 { return between(values, q) }
	return Quantiles{at(0.5), at(0.9), at(0.95), at(0.99), values[len(values)-1]}
}

// between returns a quantile of ordered values, in proportion between two.
func between(ordered []float64, q float64) float64 {
	rank := q * float64(len(ordered)-1)
	low := int(math.Floor(rank))
	if low+1 >= len(ordered) {
		return ordered[len(ordered)-1]
	}
	part := rank - float64(low)
	return ordered[low]*(1-part) + ordered[low+1]*part
}

func interpolate(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return between(values, q)
}

// Highest returns a quantile of the overall and of the hourly ones, whichever is
// the greatest. An unknown percentile counts as 95.
func (h *Habits) Highest(percentile int) float64 {
	of := func(q Quantiles) float64 {
		switch percentile {
		case 50:
			return q.P50
		case 90:
			return q.P90
		case 99:
			return q.P99
		}
		return q.P95
	}
	highest := of(h.Overall)
	for _, q := range h.Hourly {
		highest = max(highest, of(q))
	}
	return highest
}
