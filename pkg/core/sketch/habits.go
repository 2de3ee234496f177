package sketch

import (
	"math"
	"math/bits"
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
	all := make([]float64, 0, len(use))
	var hourly [24][]float64
	for hour := range hourly {
		hourly[hour] = make([]float64, 0, len(use)/len(hourly)+1)
	}
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

// quantiles puts values in order as far as it needs them: they are taken of a week in each
// five minutes.
func quantiles(values []float64) Quantiles {
	from := 0 // none before it is larger than one behind it
	at := func(q float64) float64 {
		low := int(math.Floor(q * float64(len(values)-1)))
		place(values[from:], low-from)
		if from = low; low+1 < len(values) {
			place(values[low+1:], 0)
		}
		return between(values, q)
	}
	return Quantiles{at(0.5), at(0.9), at(0.95), at(0.99), slices.Max(values)}
}

// place puts the value of a rank where it belongs in the order of values, none that is larger
// before it and none that is smaller behind it.
func place(values []float64, rank int) {
	low, high := 0, len(values)-1
	for rounds := 2 * bits.Len(uint(len(values))); low < high; rounds-- {
		if rounds == 0 { // somebody chose them so that this takes long
			slices.Sort(values[low : high+1])
			return
		}
		a, b, c := values[low], values[low+(high-low)/2], values[high]
		pivot := max(min(a, b), min(max(a, b), c))
		i, j := low, high
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for pivot < values[j] {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case rank <= j:
			high = j
		case rank >= i:
			low = i
		default:
			return
		}
	}
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
