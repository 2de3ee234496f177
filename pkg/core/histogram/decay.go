package histogram

import (
	"math"
	"sync/atomic"
	"time"
)

// Never is the zero time. It is less than any other time.
const Never int64 = math.MinInt64

// Nanoseconds returns t since 1970, clamped: before 1678 to Never, after 2261 to the latest time.
func Nanoseconds(t time.Time) int64 {
	if s := t.Unix(); -9e9 < s && s < 9e9 {
		return s*1e9 + int64(t.Nanosecond())
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

// Decay is the exponential decay of weights, shared by histograms. It caches powers of two: most
// factors repeat, because the samples of one iteration have few distinct times, and nearly all
// histograms have the same reference.
//
//	cache   [ age XOR factor | factor ]   as bits, at a hash of the age
//
// It is safe for concurrent use without a lock: a half-written entry does not yield the age, and
// counts as absent.
type Decay struct {
	halfLife time.Duration
	maxAge   int64 // age at which the reference moves, see factor
	cache    [1 << cacheBits]struct{ check, factor atomic.Uint64 }
}

const (
	cacheBits             = 12
	goldenRatioMultiplier = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio, its multiples spread evenly
)

// NewDecay returns a decay with a half-life. 0 disables decay, and times are ignored.
func NewDecay(halfLife time.Duration) *Decay {
	d := &Decay{halfLife: halfLife, maxAge: int64(100 * halfLife)}
	d.store(0, 1) // an empty entry does not match age 0
	return d
}

func (d *Decay) power(age int64) float64 {
	factor, known := d.lookup(age)
	if !known {
		factor = math.Exp2(float64(age) / float64(d.halfLife))
		d.store(age, factor)
	}
	return factor
}

func (d *Decay) lookup(age int64) (factor float64, known bool) {
	entry := &d.cache[uint64(age)*goldenRatioMultiplier>>(64-cacheBits)]
	bits := entry.factor.Load()
	return math.Float64frombits(bits), entry.check.Load()^bits == uint64(age)
}

func (d *Decay) store(age int64, factor float64) {
	entry := &d.cache[uint64(age)*goldenRatioMultiplier>>(64-cacheBits)]
	entry.factor.Store(math.Float64bits(factor))
	entry.check.Store(math.Float64bits(factor) ^ uint64(age))
}

// factor returns 2^((at-reference)/halfLife). It moves a reference over 100 half-lives older. As in
// the reference recommender, that product overflows for half-lives above 2.9 years.
func (h *Histogram) factor(at int64) float64 {
	if h.decay.halfLife == 0 {
		return 1
	}
	age := difference(at, h.reference)
	if age > h.decay.maxAge {
		h.shift(at)
		age = difference(at, h.reference)
	}
	return h.decay.power(age)
}

func (h *Histogram) shift(to int64) {
	reference, scale := h.shifted(to)
	for bucket := h.min; bucket <= h.max; bucket++ {
		h.weights[bucket-h.base] *= scale
	}
	h.reference, h.total = reference, h.total*scale
	h.trim()
}

// shifted returns the nearest multiple of the half-life, possibly later, and the scale of weights.
func (h *Histogram) shifted(to int64) (reference int64, scale float64) {
	reference = Nanoseconds(Time(to).Round(h.decay.halfLife))
	exponent := math.Floor(float64(difference(h.reference, reference))/float64(h.decay.halfLife) + 0.5)
	return reference, math.Ldexp(1, int(exponent))
}

func difference(a, b int64) int64 {
	d := a - b
	if (d < 0) == (a < b) {
		return d
	} else if a < b {
		return math.MinInt64
	}
	return math.MaxInt64
}
