package trail

import (
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/amount"
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

// The points of a week, five minutes each.
const (
	pointWidth = int64(5 * time.Minute)
	points     = 7 * 24 * 12
)

// Points are the uses in each five minutes of a week: means of CPU, maxima of
// memory. Make it with NewPoints.
type Points struct {
	kind    amount.Kind
	uses    [points]uint16 // coded, in thousandths; 0 = none; by number, modulo the ring
	running int64          // number of the point that is open, since 1970
	sum     float64        // of the uses in it
	count   float64
	read    int64  // number of points that habits were taken of
	habits  Habits // as they were then
}

// NewPoints returns an empty one.
func NewPoints(k amount.Kind) *Points { return &Points{kind: k} }

// Observe takes a use in millicores or bytes.
func (p *Points) Observe(at int64, use float64) {
	if number := at / pointWidth; number != p.running {
		advance(&p.running, number, p.uses[:])
		p.sum, p.count = 0, 0
	}
	slot := &p.uses[p.running%points]
	if p.kind == amount.Memory {
		*slot = max(*slot, encode(use*1000))
		return
	}
	p.sum, p.count = p.sum+use, p.count+1
	*slot = encode(p.sum / p.count * 1000)
}

// Habits returns those of the points that are complete. They are taken anew with
// each of them.
func (p *Points) Habits() *Habits {
	if p.read == p.running {
		return &p.habits
	}
	var at []int64
	var uses []float64
	for number := max(p.running-points+1, 0); number < p.running; number++ {
		if code := p.uses[number%points]; code != 0 {
			at, uses = append(at, number*pointWidth/1e9), append(uses, decode(code)/1000)
		}
	}
	p.habits, p.read = NewHabits(at, uses), p.running
	return &p.habits
}
