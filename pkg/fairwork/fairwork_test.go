package fairwork

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func runTwo(items []int, may func(int) bool, do func(worker, item int)) []int {
	return Run(items, 2, func(int) string { return "" }, may, do)
}

func TestRun_StartsItemsInOrderUntilMayRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var begun []int
		workers := map[int]bool{}
		start := time.Now()
		left := runTwo([]int{0, 1, 2, 3, 4, 5, 6}, func(i int) bool { return i != 5 }, func(worker, item int) {
			mu.Lock()
			begun, workers[worker] = append(begun, item), true
			mu.Unlock()
			time.Sleep(time.Second)
		})
		require.Equal(t, []int{5, 6}, left)
		require.ElementsMatch(t, []int{0, 1, 2, 3, 4}, begun)
		require.ElementsMatch(t, []int{0, 1}, begun[:2])
		require.Len(t, workers, 2)
		require.Equal(t, 3*time.Second, time.Since(start), "two at a time")
	})
	require.Empty(t, runTwo(nil, func(int) bool { return true }, func(int, int) { t.Error("there is nothing to do") }))
}

func TestRun_StuckWorkerDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done := 0
		require.Empty(t, runTwo(make([]int, 9), func(int) bool { return true }, func(worker, _ int) {
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

func TestRun_NamespaceDoesNotDelayOthers(t *testing.T) {
	type item struct {
		namespace string
		takes     time.Duration
	}
	many := func(n int, i item) []item { return slices.Repeat([]item{i}, n) }
	for _, tc := range []struct {
		name    string
		workers int
		items   []item
		within  map[string]time.Duration // end of the last item of a namespace
	}{
		{"many short items", 1, append(many(100, item{"hog", 100 * time.Millisecond}), many(3, item{"b", 100 * time.Millisecond})...),
			map[string]time.Duration{"b": 2300 * time.Millisecond, "hog": 10300 * time.Millisecond}},
		{"two workers", 2, append(many(100, item{"hog", 100 * time.Millisecond}), many(2, item{"b", 100 * time.Millisecond})...),
			map[string]time.Duration{"b": 1200 * time.Millisecond}},
		{"long items", 2, append(many(9, item{"hog", 5 * time.Second}), item{"b", time.Second}),
			map[string]time.Duration{"b": 6 * time.Second}},
		{"rounds", 1, slices.Concat(many(100, item{"hog", time.Second}), many(5, item{"b", time.Second}), many(1, item{"c", time.Second})),
			map[string]time.Duration{"c": 5 * time.Second, "b": 12 * time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				start, last, count := time.Now(), map[string]time.Duration{}, 0
				require.Empty(t, Run(tc.items, tc.workers, func(i item) string { return i.namespace }, func(item) bool { return true },
					func(_ int, i item) {
						time.Sleep(i.takes)
						mu.Lock()
						defer mu.Unlock()
						last[i.namespace] = time.Since(start)
						count++
					}))
				require.Equal(t, len(tc.items), count)
				for namespace, within := range tc.within {
					require.LessOrEqual(t, last[namespace], within, namespace)
				}
			})
		})
	}
}
