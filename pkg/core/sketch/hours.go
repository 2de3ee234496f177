package sketch

import (
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// hoursKept is a week and the hour that is running.
const hoursKept = 7*24 + 1

// Hours are the highest uses in each hour of a week. The zero value is of CPU.
type Hours struct {
	kind    resources.Kind
	highest [hoursKept]uint16     // codes of the scale of the kind; 0 = none; by the number of the hour, modulo the ring
	running int64                 // number of the hour, since 1970
	recent  [recentMinutes]uint16 // use of the last minutes, in the same way
	minute  int64
}

// recentMinutes is how long the base of a recommendation looks back at most.
const recentMinutes = 30

// newHours returns the empty hours of a kind.
func newHours(k resources.Kind) *Hours { return &Hours{kind: k} }

// adapt returns the hours if they are needed, empty ones in place of none.
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

// Observe takes a use in millicores or bytes.
func (h *Hours) Observe(at int64, use float64) {
	advanceRing(&h.running, at/int64(time.Hour), h.highest[:])
	advanceRing(&h.minute, at/int64(time.Minute), h.recent[:])
	code := scales[h.kind].encode(use)
	hour, minute := &h.highest[h.running%hoursKept], &h.recent[h.minute%recentMinutes]
	*hour, *minute = max(*hour, code), max(*minute, code)
}

// Peak returns the highest use in the same hour of the day during the last seven days, or in the last hour.
func (h *Hours) Peak() float64 { return max(h.SameHour(), h.LastHour()) }

// SameHour returns the highest use in the hour that is running, and in the same hour of the last seven days.
func (h *Hours) SameHour() float64 {
	code := uint16(0)
	for ago := int64(0); ago < hoursKept && ago <= h.running; ago += 24 {
		code = max(code, h.highest[(h.running-ago)%hoursKept])
	}
	return h.decode(code)
}

// LastHour returns the highest use in the hour that is running and the one before.
func (h *Hours) LastHour() float64 {
	return h.decode(max(h.highest[h.running%hoursKept], h.highest[(h.running+hoursKept-1)%hoursKept]))
}

// Highest returns the highest use of the last seven days.
func (h *Hours) Highest() float64 { return h.decode(slices.Max(h.highest[:])) }

// Recent returns a quantile of the use of the last minutes, of which at most thirty are kept.
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
	h.running = r.Within(0, mostNumber)
	r.Scaled(&scales[h.kind], h.highest[:])
	h.minute = r.Within(0, mostNumber)
	r.Scaled(&scales[h.kind], h.recent[:])
}

// Waited takes the share of the time, 0 to 1, for which CPU work waited while a use was measured, after that use was
// observed. Had nothing waited, the use would have been use x (1 + share): Pressed holds the highest of these.
func (t *Sketch) Waited(at time.Time, use resources.Amount, share float64) {
	if !t.waits || t.Hours[resources.CPU] == nil {
		return
	}
	if t.Pressed == nil {
		t.Pressed = unpressed(t)
	}
	t.Pressed.Observe(at.UnixNano(), float64(use)*(1+share))
}

// unpressed returns what Pressed begins with: the hours as they were measured.
func unpressed(t *Sketch) *Hours {
	same := *t.Hours[resources.CPU]
	return &same
}

// pressure is the part Pressed, which is there only once somebody knew of waiting.
type pressure struct{}

func (pressure) needed(t *Sketch) bool { return t.waits }

// merge takes the hours as they were measured for a sketch that knows of no waiting.
func (pressure) merge(t, o *Sketch) {
	if !t.waits || t.Pressed == nil && o.Pressed == nil || t.Hours[resources.CPU] == nil || o.Hours[resources.CPU] == nil {
		return
	}
	if t.Pressed == nil {
		t.Pressed = unpressed(t)
	}
	if o.Pressed == nil {
		t.Pressed.merge(o.Hours[resources.CPU])
		return
	}
	t.Pressed.merge(o.Pressed)
}

func (pressure) write(t *Sketch, w *imageWriter) {
	if t.Pressed != nil {
		t.Pressed.write(w)
	}
}

func (pressure) read(t *Sketch, r *imageReader) bool {
	if t.waits {
		t.Pressed = newHours(resources.CPU)
		t.Pressed.read(r)
	}
	return t.waits
}

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
