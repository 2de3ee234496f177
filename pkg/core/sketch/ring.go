package sketch

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
