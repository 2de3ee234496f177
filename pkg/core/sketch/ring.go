package sketch

import "math"

// codeStep is the ratio of two neighbouring codes; with it the largest code stands
// for more bytes than there are.
const codeStep = 1.001

var logStep = math.Log(codeStep)

// encode rounds an amount up to a power of codeStep. The smallest code is 1: 0 stands
// for no amount at all.
func encode(amount float64) uint16 {
	if amount < 1 {
		return 1
	}
	return uint16(min(math.Ceil(math.Log(amount)/logStep-1e-6)+1, math.MaxUint16))
}

// decode is the inverse of encode, and 0 for no amount.
func decode(code uint16) float64 {
	if code == 0 {
		return 0
	}
	return math.Exp(float64(code-1) * logStep)
}

// mostNumber is more than that of any slot that can be.
const mostNumber = 1 << 40

// advanceRing makes a number the running one of a ring, if it is larger, and empties
// the slots that are used again.
func advanceRing(running *int64, to int64, slots []uint16) {
	n := int64(len(slots))
	if to-*running >= n {
		clear(slots)
		*running = to
	}
	for *running < to {
		*running++
		slots[*running%n] = 0
	}
}

// mergeRings adds another ring of the same length: of two slots with the same number
// the higher counts.
func mergeRings(running *int64, slots []uint16, other int64, theirs []uint16) {
	advanceRing(running, other, slots)
	n := int64(len(slots))
	for number := max(*running-n+1, other-n+1, 0); number <= other; number++ {
		slots[number%n] = max(slots[number%n], theirs[number%n])
	}
}
