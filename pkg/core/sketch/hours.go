package sketch

import (
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// hoursKept is one week and the current hour.
const hoursKept = 7*24 + 1

// Hours holds the peak usage in each hour of a week. The zero value is for CPU.
type Hours struct {
	kind    resources.Kind
	highest [hoursKept]uint16     // scale codes by hour number modulo the ring, 0 = none
	running int64                 // number of the current hour since 1970
	recent  [recentMinutes]uint16 // usage of the last minutes, stored in the same way
	minute  int64
}

// recentMinutes is the longest lookback of a base.
const recentMinutes = 30

func newHours(k resources.Kind) *Hours { return &Hours{kind: k} }

func (h *Hours) adapt(k resources.Kind, needed bool) *Hours {
	switch {
	case !needed:
		return nil
	case h == nil:
		return newHours(k)
	}
	return h
}

func (h *Hours) decode(code uint16) float64 { return scales[h.kind].decode(code) }

// Observe adds a sample in millicores or bytes.
func (h *Hours) Observe(at int64, use float64) {
	advanceRing(&h.running, at/int64(time.Hour), h.highest[:])
	advanceRing(&h.minute, at/int64(time.Minute), h.recent[:])
	code := scales[h.kind].encode(use)
	hour, minute := &h.highest[h.running%hoursKept], &h.recent[h.minute%recentMinutes]
	*hour, *minute = max(*hour, code), max(*minute, code)
}

// Peak returns the maximum of SameHour and LastHour.
func (h *Hours) Peak() float64 { return max(h.SameHour(), h.LastHour()) }

// SameHour returns the highest usage in the current hour and the same hour of the last seven days.
func (h *Hours) SameHour() float64 {
	code := uint16(0)
	for ago := int64(0); ago < hoursKept && ago <= h.running; ago += 24 {
		code = max(code, h.highest[(h.running-ago)%hoursKept])
	}
	return h.decode(code)
}

// LastHour returns the highest usage in the current hour and the one before.
func (h *Hours) LastHour() float64 {
	return h.decode(max(h.highest[h.running%hoursKept], h.highest[(h.running+hoursKept-1)%hoursKept]))
}

// Highest returns the highest usage of the last seven days.
func (h *Hours) Highest() float64 { return h.decode(slices.Max(h.highest[:])) }

// Recent returns a quantile of the usage of the last minutes, at most 30.
func (h *Hours) Recent(minutes int64, q float64) float64 {
	var values []float64
	for i := range min(minutes, recentMinutes) {
		if code := h.recent[(h.minute+recentMinutes-i)%recentMinutes]; code != 0 {
			values = append(values, h.decode(code))
		}
	}
	return interpolate(values, q)
}

func (h *Hours) merge(o *Hours) {
	mergeRings(&h.running, h.highest[:], o.running, o.highest[:])
	mergeRings(&h.minute, h.recent[:], o.minute, o.recent[:])
}

func (h *Hours) write(w *imageWriter) {
	w.Int(h.running)
	w.Codes(h.highest[:])
	w.Int(h.minute)
	w.Codes(h.recent[:])
}

func (h *Hours) read(r *imageReader) {
	h.running = r.Within(0, maxSlotNumber)
	r.Scaled(&scales[h.kind], h.highest[:])
	h.minute = r.Within(0, maxSlotNumber)
	r.Scaled(&scales[h.kind], h.recent[:])
}

// ObservePressure adds the share of time, 0 to 1, for which CPU work waited, after the observation
// of that usage. PressureHours keeps the peaks of usage x (1 + share), the usage without waiting.
func (t *Sketch) ObservePressure(at time.Time, use resources.Amount, share float64) {
	if !t.needsPressure || t.Hours[resources.CPU] == nil {
		return
	}
	if t.PressureHours == nil {
		t.PressureHours = newPressureHours(t)
	}
	t.PressureHours.Observe(at.UnixNano(), float64(use)*(1+share))
}

func newPressureHours(t *Sketch) *Hours {
	same := *t.Hours[resources.CPU]
	return &same
}

type pressurePart struct{}

func (pressurePart) needed(t *Sketch) bool { return t.needsPressure }

// merge uses the measured hours for a sketch without pressure measurements.
func (pressurePart) merge(t, o *Sketch) {
	if !t.needsPressure || t.PressureHours == nil && o.PressureHours == nil || t.Hours[resources.CPU] == nil || o.Hours[resources.CPU] == nil {
		return
	}
	if t.PressureHours == nil {
		t.PressureHours = newPressureHours(t)
	}
	if o.PressureHours == nil {
		t.PressureHours.merge(o.Hours[resources.CPU])
		return
	}
	t.PressureHours.merge(o.PressureHours)
}

func (pressurePart) write(t *Sketch, w *imageWriter) {
	if t.PressureHours != nil {
		t.PressureHours.write(w)
	}
}

func (pressurePart) read(t *Sketch, r *imageReader) bool {
	if t.needsPressure {
		t.PressureHours = newHours(resources.CPU)
		t.PressureHours.read(r)
	}
	return t.needsPressure
}

// Quantiles are the quantiles of a set of samples.
type Quantiles struct{ P50, P90, P95, P99, Max float64 }

// UsageProfile summarizes the usage of a container over some days, in the unit of the samples.
type UsageProfile struct {
	Overall    Quantiles
	Hourly     [hoursADay]Quantiles // UTC, all 0 without samples
	Known      [hoursADay]bool      // the hour has samples
	Points     int
	Days       float64 // from the first to the last sample
	Confidence float64 // 0 to 1
	Burst      float64 // peak over the 95th percentile if it is a burst, else 0
}

// A maximum over burstRatio times the 95th percentile is a burst.
const (
	burstRatio         = 3
	fullConfidenceDays = 7
)

// Ranked gives access to amounts by rank, smallest first.
type Ranked interface {
	Len() int
	At(rank int) float64
}

// QuantilesOf returns the quantiles of amounts, all 0 if there are none.
func QuantilesOf(amounts Ranked) Quantiles {
	if amounts.Len() == 0 {
		return Quantiles{}
	}
	at := func(q float64) float64 { return quantile(amounts, q) }
	return Quantiles{at(0.5), at(0.9), at(0.95), at(0.99), at(1)}
}

// Assess sets confidence and burst from the quantiles, the samples and the days that they span.
func (h *UsageProfile) Assess(points int, days float64) {
	h.Points, h.Days, h.Burst = points, days, 0
	h.Confidence = min(max(min(days, math.Sqrt(float64(points)/24))/fullConfidenceDays, 0), 1)
	if p95 := h.Overall.P95; p95 > 0 && h.Overall.Max/p95 > burstRatio {
		h.Burst = h.Overall.Max / p95
	}
}

func quantile(amounts Ranked, q float64) float64 {
	rank := q * float64(amounts.Len()-1)
	low := int(math.Floor(rank))
	if low+1 >= amounts.Len() {
		return amounts.At(amounts.Len() - 1)
	}
	part := rank - float64(low)
	return amounts.At(low)*(1-part) + amounts.At(low+1)*part
}

// interpolate sorts values and returns a quantile, 0 if there are none.
func interpolate(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return quantile(SortedAmounts(values), q)
}

// SortedAmounts are amounts in ascending order.
type SortedAmounts []float64

// Len returns the number of amounts.
func (o SortedAmounts) Len() int { return len(o) }

// At returns the amount of a rank.
func (o SortedAmounts) At(rank int) float64 { return o[rank] }

// Highest returns the highest overall or hourly percentile. Unsupported percentiles count as 95.
func (h *UsageProfile) Highest(percentile int) float64 {
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
