package sketch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRing_HoldsLatestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var slots [5]uint16
		var running int64
		all := map[int64]uint16{}
		for range rapid.IntRange(1, 30).Draw(t, "codes") {
			number, code := running+rapid.Int64Range(0, 8).Draw(t, "later"), rapid.Uint16Range(1, 9).Draw(t, "code")
			advanceRing(&running, number, slots[:])
			slots[number%5] = max(slots[number%5], code)
			all[number] = max(all[number], code)
		}
		for number := max(running-4, 0); number <= running; number++ {
			require.Equal(t, all[number], slots[number%5], "number %d", number)
		}
	})
}
