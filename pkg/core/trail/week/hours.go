package week

import (
	"time"

	"loadline.dev/loadline/pkg/core/trail/ring"
)

// hoursKept is a week and the hour that is running.
const hoursKept = 7*24 + 1

// Hours are the highest uses in each hour of a week.
type Hours struct {
	highest [hoursKept]uint16     // coded, in thousandths; 0 = none; by the number of the hour, modulo the ring
	running int64                 // number of the hour, since 1970
	recent  [recentMinutes]uint16 // use of the last minutes, in the same way
	minute  int64
}

// recentMinutes is how long the base of a recommendation looks back at most.
const recentMinutes = 30

// Observe takes a use.
func (h *Hours) Observe(at int64, use float64) {
	ring.Advance(&h.running, at/int64(time.Hour), h.highest[:])
	ring.Advance(&h.minute, at/int64(time.Minute), h.recent[:])
	code := ring.Encode(use * 1000)
	hour, minute := &h.highest[h.running%hoursKept], &h.recent[h.minute%recentMinutes]
	*hour, *minute = max(*hour, code), max(*minute, code)
}

// Peak returns the highest use in the same hour of the day during the last seven
// days, or in the last hour.
func (h *Hours) Peak() float64 {
	code := max(h.highest[h.running%hoursKept], h.highest[(h.running+hoursKept-1)%hoursKept])
	for ago := int64(24); ago < hoursKept && ago <= h.running; ago += 24 {
		code = max(code, h.highest[(h.running-ago)%hoursKept])
	}
	return ring.Decode(code) / 1000
}

// Recent returns a quantile of the use of the last minutes, of which at most
// thirty are kept.
func (h *Hours) Recent(minutes int64, q float64) float64 {
	var values []float64
	for i := range min(minutes, recentMinutes) {
		if code := h.recent[(h.minute+recentMinutes-i)%recentMinutes]; code != 0 {
			values = append(values, ring.Decode(code)/1000)
		}
	}
	return interpolate(values, q)
}

// Merge adds another one.
func (h *Hours) Merge(o *Hours) {
	ring.Merge(&h.running, h.highest[:], o.running, o.highest[:])
	ring.Merge(&h.minute, h.recent[:], o.minute, o.recent[:])
}

// Write adds the hours to an image.
func (h *Hours) Write(w *ring.Writer) {
	w.Int(h.running)
	w.Codes(h.highest[:])
	w.Int(h.minute)
	w.Codes(h.recent[:])
}

// Read takes them from one.
func (h *Hours) Read(r *ring.Reader) {
	h.running = r.Within(0, ring.MostNumber)
	r.Codes(h.highest[:])
	h.minute = r.Within(0, ring.MostNumber)
	r.Codes(h.recent[:])
}

// Highest is the highest use of the hour that ended at an instant.
type Highest struct {
	At  time.Time
	Use float64
}

// HourPeak is Hours.Peak for exact maxima of hours that need not be those of the
// clock: the highest of those that ended within the last hour, at this hour of the
// day, and at this hour of this day of the week.
func HourPeak(now time.Time, all []Highest) (current, daily, weekly float64) {
	now = now.UTC()
	for _, h := range all {
		at := h.At.UTC()
		if at.After(now) || now.Sub(at) > 7*24*time.Hour {
			continue
		}
		if now.Sub(at) <= time.Hour {
			current = max(current, h.Use)
		}
		if at.Hour() == now.Hour() {
			daily = max(daily, h.Use)
			if at.Weekday() == now.Weekday() {
				weekly = max(weekly, h.Use)
			}
		}
	}
	return current, daily, weekly
}
