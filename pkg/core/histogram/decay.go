package histogram

import (
	"math"
	"time"
)

// Never stands for the zero time and is less than any other instant.
const Never int64 = math.MinInt64

// Nanoseconds returns t in nanoseconds since 1970. A time before 1678 counts as
// Never, one after 2261 as the last that fits.
func Nanoseconds(t time.Time) int64 {
	if s := t.Unix(); -9e9 < s && s < 9e9 {
		return t.UnixNano()
	}
	return int64(t.Sub(time.Unix(0, 0)))
}

// Time is the inverse of Nanoseconds, in UTC.
func Time(nanoseconds int64) time.Time {
	if nanoseconds == Never {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds).UTC()
}

// factor returns 2^((at-reference)/halfLife). It moves the reference first if at
// is more than 100 half-lives later, a product that overflows above 2.9 years as
// it does in the reference recommender.
func (h *Histogram) factor(at time.Time) float64 {
	if h.halfLife == 0 {
		return 1
	}
	now := Nanoseconds(at)
	if difference(now, h.reference) > int64(100*h.halfLife) {
		h.shift(now)
	}
	return math.Exp2(float64(difference(now, h.reference)) / float64(h.halfLife))
}

// shift moves the reference near an instant and scales weights accordingly.
func (h *Histogram) shift(to int64) {
	reference, scale := h.shifted(to)
	for bucket := h.min; bucket <= h.max; bucket++ {
		h.weights[bucket-h.base] *= scale
	}
	h.reference, h.total = reference, h.total*scale
	h.trim()
}

// shifted returns the multiple of the half-life since the zero time that is
// nearest to an instant (perhaps after it), and by which power of two weights
// change when that becomes the reference.
func (h *Histogram) shifted(to int64) (reference int64, scale float64) {
	reference = Nanoseconds(Time(to).Round(h.halfLife))
	exponent := math.Floor(float64(difference(h.reference, reference))/float64(h.halfLife) + 0.5)
	return reference, math.Ldexp(1, int(exponent))
}

// difference returns a-b, saturating.
func difference(a, b int64) int64 {
	d := a - b
	if (d < 0) == (a < b) {
		return d
	} else if a < b {
		return math.MinInt64
	}
	return math.MaxInt64
}
