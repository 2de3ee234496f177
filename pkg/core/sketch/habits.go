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
	Hourly     [hoursADay]Quantiles // UTC; without samples all 0
	Known      [hoursADay]bool      // there are samples of the hour
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

// Ranked are amounts that can be read by their rank, the smallest first.
type Ranked interface {
	Len() int
	At(rank int) float64
}

// QuantilesOf returns the quantiles of some amounts, all 0 if there are none.
func QuantilesOf(amounts Ranked) Quantiles {
	if amounts.Len() == 0 {
		return Quantiles{}
	}
	at := func(q float64) float64 { return between(amounts, q) }
	return Quantiles{at(0.5), at(0.9), at(0.95), at(0.99), at(1)}
}

// Judge completes habits whose quantiles are known with what follows from these, from
// the number of samples, and from the days between the first and the last of them.
func (h *Habits) Judge(points int, days float64) {
	h.Points, h.Days, h.Burst = points, days, 0
	h.Confidence = min(max(min(days, math.Sqrt(float64(points)/24))/sureDays, 0), 1)
	if p95 := h.Overall.P95; p95 > 0 && h.Overall.Max/p95 > burstRatio {
		h.Burst = h.Overall.Max / p95
	}
}

// between returns a quantile of amounts, in proportion between two.
func between(amounts Ranked, q float64) float64 {
	rank := q * float64(amounts.Len()-1)
	low := int(math.Floor(rank))
	if low+1 >= amounts.Len() {
		return amounts.At(amounts.Len() - 1)
	}
	part := rank - float64(low)
	return amounts.At(low)*(1-part) + amounts.At(low+1)*part
}

// interpolate returns a quantile of values that it puts in order, 0 if there are none.
func interpolate(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return between(Ordered(values), q)
}

// Ordered are amounts in their order.
type Ordered []float64

// Len returns their number.
func (o Ordered) Len() int { return len(o) }

// At returns the amount of a rank.
func (o Ordered) At(rank int) float64 { return o[rank] }

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
