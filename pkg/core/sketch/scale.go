package sketch

import (
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// codeStep is the largest ratio of two neighboring amounts of a scale.
const codeStep = 1.001

// scale lists the amounts that the codes of one kind stand for, in ascending order: code i+1 is
// amounts[i], and code 0 is no amount. Amounts that manifests use, such as 200m or 300Mi, are on
// the scale and therefore exact. Other amounts are rounded up by at most a thousandth.
type scale struct{ amounts []float64 }

// scales are the scales of CPU in millicores and of memory in bytes.
var scales = [resources.Kinds]scale{
	resources.CPU: newScale(1e12, 1000, []multiples{
		{100, 500e3}, {1e3, 20e6}, {10e3, 100e6}, {100e3, 1e9}, // 0.1m to 0.5 cores, 1m to 20, 10m to 100, 100m to 1,000
	}),
	resources.Memory: newScale(1<<54, 1, []multiples{
		{1, 1e3}, {1e3, 1e6}, {1 << 10, 1 << 20},
		{1e6, 10e9}, {100e6, 100e9}, {1e9, 1e12},
		{1 << 20, 16 << 30}, {128 << 20, 256 << 30}, {1 << 30, 1 << 40},
	}),
}

// multiples are all multiples of a unit below a limit.
type multiples struct{ unit, below float64 }

// newScale returns the scale from 1/divisor to last/divisor. It has the given multiples, and
// between them no two neighbors differ by more than a thousandth.
func newScale(last, divisor float64, exact []multiples) scale {
	var s scale
	for amount := 1.0; amount < last && len(s.amounts) < math.MaxUint16; {
		s.amounts = append(s.amounts, amount/divisor)
		next := amount * codeStep
		for _, m := range exact {
			if amount < m.below {
				next = min(next, (math.Floor(amount/m.unit)+1)*m.unit)
			}
		}
		amount = next
	}
	return s
}

// encode returns the code of an amount, which is at least 1.
func (s *scale) encode(amount float64) uint16 {
	const noise = 1e-9 // of floating point arithmetic
	at, _ := slices.BinarySearch(s.amounts, amount*(1-noise))
	return uint16(min(at+1, len(s.amounts)))
}

// decode is the inverse of encode, and 0 for no amount.
func (s *scale) decode(code uint16) float64 {
	if code == 0 {
		return 0
	}
	return s.amounts[min(int(code), len(s.amounts))-1]
}

// recode returns the code of the scale for a power of codeStep, in parts of a millicore or byte, as
// older images have it. It is rounded up.
func (s *scale) recode(code uint16, parts float64) uint16 {
	if code == 0 {
		return 0
	}
	return s.encode(math.Pow(codeStep, float64(code-1)) / parts)
}
