package serving

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestItemsAreBegunInOrderUntilNoMoreMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var begun []int
		workers := map[int]bool{}
		start := time.Now()
		n := InOrder(2, []int{0, 1, 2, 3, 4, 5, 6}, func(i int) bool { return i != 5 }, func(worker, item int) {
			mu.Lock()
			begun, workers[worker] = append(begun, item), true
			mu.Unlock()
			time.Sleep(time.Second)
		})
		require.Equal(t, 5, n)
		require.ElementsMatch(t, []int{0, 1, 2, 3, 4}, begun)
		require.ElementsMatch(t, []int{0, 1}, begun[:2])
		require.Len(t, workers, 2)
		require.Equal(t, 3*time.Second, time.Since(start), "two at a time")
	})
	require.Zero(t, InOrder(2, nil, func(int) bool { return true }, func(int, int) { t.Error("there is nothing to do") }))
}

// A worker that is stuck stops nothing but itself.
func TestOneThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done := 0
		require.Equal(t, 9, InOrder(2, make([]int, 9), func(int) bool { return true }, func(worker, _ int) {
			if mu.Lock(); done == 0 {
				done++
				mu.Unlock()
				time.Sleep(time.Hour)
				return
			}
			done++
			mu.Unlock()
			time.Sleep(time.Second)
		}))
		require.Equal(t, 9, done)
	})
}
