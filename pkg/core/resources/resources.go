// Package resources provides integer arithmetic for CPU and memory, without API quantities and
// fractions.
//
//	Kind    CPU or Memory
//	Amount  millicores or bytes
//	List    optional amount for each kind
//	Bounds  recommendation: lower bound, target and upper bound
//
// Arithmetic saturates, so that extreme input cannot turn a large amount into a negative one.
// Package convert parses and prints quantities.
package resources

import (
	"math"
	"math/bits"
)

// List holds an optional amount for each kind. Lists are comparable with ==; zero: empty.
type List struct {
	amounts [Kinds]Amount
	present [Kinds]bool
}

// NewList returns a list with both kinds.
func NewList(cpu, memory Amount) List {
	return List{}.With(CPU, cpu).With(Memory, memory)
}

// Get returns the amount of kind k and whether it is present.
func (r List) Get(k Kind) (Amount, bool) { return r.amounts[k], r.present[k] }

// Value returns the amount of kind k, or 0.
func (r List) Value(k Kind) Amount { return r.amounts[k] }

// Has reports whether kind k is present.
func (r List) Has(k Kind) bool { return r.present[k] }

// With returns a copy of r with amount a for kind k.
func (r List) With(k Kind, a Amount) List {
	r.amounts[k], r.present[k] = a, true
	return r
}

// Without returns a copy of r without kind k.
func (r List) Without(k Kind) List {
	r.amounts[k], r.present[k] = 0, false
	return r
}

// Empty reports whether no kind is present.
func (r List) Empty() bool { return r == List{} }

// Override returns r with the amounts of by where present.
func (r List) Override(by List) List {
	for k := range Kind(Kinds) {
		if by.Has(k) {
			r = r.With(k, by.Value(k))
		}
	}
	return r
}

// Plus returns the sum of two lists.
func (r List) Plus(more List) List {
	for k := range Kind(Kinds) {
		if more.Has(k) {
			r = r.With(k, r.Value(k).Add(more.Value(k)))
		}
	}
	return r
}

// Larger returns the larger amounts of two lists.
func (r List) Larger(other List) List {
	for k := range Kind(Kinds) {
		if other.Has(k) && (other.Value(k) > r.Value(k) || !r.Has(k)) {
			r = r.With(k, other.Value(k))
		}
	}
	return r
}

// Fits reports whether r is at most free. A kind that free lacks is unlimited.
func (r List) Fits(free List) bool {
	for k := range Kind(Kinds) {
		if free.Has(k) && r.Value(k) > free.Value(k) {
			return false
		}
	}
	return true
}

// Bounds is a recommendation for one container. Kinds without one are absent from all lists.
type Bounds struct {
	Lower  List // smaller requests are certainly too small
	Target List // recommended request
	Upper  List // larger requests are certainly too large
}

// AtLeast returns bounds with a target of at least floor. Kinds that floor lacks are unchanged.
func (b Bounds) AtLeast(floor List) Bounds {
	for k := range Kind(Kinds) {
		minimum, there := floor.Get(k)
		if !there {
			continue
		}
		b.Target = b.Target.With(k, max(minimum, b.Target.Value(k)))
		if upper, bounded := b.Upper.Get(k); bounded {
			b.Upper = b.Upper.With(k, max(upper, minimum))
		}
	}
	return b
}

// Kind is a resource that Loadline sizes.
type Kind uint8

// Resource kinds, in listing order.
const (
	CPU    Kind = iota // in millicores
	Memory             // in bytes
	Kinds  = 2         // number of kinds
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

// Max is the largest estimate, as in the reference recommender: 100 G cores or 97,656,250,000 KiB.
const Max Amount = 1e14

// FromFloat truncates x to [0, Max]. NaN, zero with zero confidence, becomes 0 to end at its floor.
func FromFloat(x float64) Amount {
	switch {
	case !(x > 0):
		return 0
	case x >= float64(Max):
		return Max
	}
	return Amount(x)
}

// Scale returns a·f without fraction, clamped like FromFloat.
func (a Amount) Scale(f float64) Amount { return FromFloat(float64(a) * f) }

// Add returns a+b, saturated to the int64 range.
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

// Proportion returns floor(a·num/den) for a, num >= 0 and den > 0, or the largest int64 and false.
func (a Amount) Proportion(num, den Amount) (Amount, bool) {
	q, _, ok := a.divide(num, den)
	return q, ok
}

// ProportionUp is Proportion rounded up.
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

// RoundUp rounds a up to a multiple of step, in float64 as the reference recommender; step <= 1: a.
func (a Amount) RoundUp(step int64) Amount {
	if step <= 1 || a == 0 {
		return a
	}
	return Amount(math.Ceil(float64(a)/float64(step)) * float64(step))
}
