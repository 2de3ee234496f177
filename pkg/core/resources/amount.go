package resources

import (
	"math"
	"math/bits"
)

// Kind is a resource that Loadline sizes.
type Kind uint8

// The kinds, in the order in which they are always listed.
const (
	CPU    Kind = iota // in millicores
	Memory             // in bytes
	Kinds  = 2         // the number of kinds
)

// String returns the resource name of the Kubernetes API: "cpu" or "memory".
func (k Kind) String() string {
	if k == CPU {
		return "cpu"
	}
	return "memory"
}

// Amount is a quantity of one kind: millicores of CPU or bytes of memory.
type Amount int64

// Max is the largest estimate: 100 G cores or 97,656,250,000 KiB. The
// reference recommender clamps every step of an estimate to it.
const Max Amount = 1e14

// FromFloat drops the fraction of x and clamps it to [0, Max]. NaN gives 0, so
// that an estimate of "nothing times no confidence" ends at its floor.
func FromFloat(x float64) Amount {
	switch {
	case !(x > 0):
		return 0
	case x >= float64(Max):
		return Max
	}
	return Amount(x)
}

// Scale returns a·f with the fraction dropped, clamped as FromFloat does.
func (a Amount) Scale(f float64) Amount { return FromFloat(float64(a) * f) }

// Add returns a+b, or the largest or smallest int64 where that overflows.
func (a Amount) Add(b Amount) Amount {
	sum := a + b
	if (sum > a) == (b > 0) {
		return sum
	}
	if b > 0 {
		return math.MaxInt64
	}
	return math.MinInt64
}

// Proportion returns floor(a·num/den) for non-negative a and num and positive
// den, computed without overflow in between. If the result itself exceeds the
// largest int64 it returns that and false.
func (a Amount) Proportion(num, den Amount) (Amount, bool) {
	q, _, ok := a.divide(num, den)
	return q, ok
}

// ProportionUp is Proportion rounded up instead of down.
func (a Amount) ProportionUp(num, den Amount) (Amount, bool) {
	q, rest, ok := a.divide(num, den)
	if rest > 0 {
		q = q.Add(1)
	}
	return q, ok
}

func (a Amount) divide(num, den Amount) (quotient Amount, rest uint64, ok bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(num))
	if hi >= uint64(den) {
		return math.MaxInt64, 0, false
	}
	q, rest := bits.Div64(hi, lo, uint64(den))
	if q > math.MaxInt64 {
		return math.MaxInt64, 0, false
	}
	return Amount(q), rest, true
}

// RoundUp returns the smallest multiple of step that is not below a, computed
// in float64 as the reference recommender does. A step of 1 or below, or an
// amount of 0, leaves a unchanged.
func (a Amount) RoundUp(step int64) Amount {
	if step <= 1 || a == 0 {
		return a
	}
	return Amount(math.Ceil(float64(a)/float64(step)) * float64(step))
}
