package server

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestABudgetIsNeverOverdrawnAndServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		require.True(t, b.take(t.Context(), 7))
		var mu sync.Mutex
		var order []string
		ended := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
		}
		served := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}
		wait := func(name string, amount int, atMost time.Duration) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), atMost)
				defer cancel()
				if b.take(ctx, amount) {
					ended(name)
				} else {
					ended("not " + name)
				}
			}()
			synctest.Wait()
		}
		wait("large", 9, time.Second)
		wait("small", 3, time.Minute)
		require.Empty(t, served(), "the small one fits, but came later")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.ElementsMatch(t, []string{"not large", "small"}, served(), "who leaves the queue makes way for those behind")
		require.Zero(t, b.left)
		wait("last", 10, time.Minute)
		b.give(3)
		synctest.Wait()
		require.Len(t, served(), 2)
		b.give(7)
		synctest.Wait()
		require.Equal(t, "last", served()[2])
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		b.give(10)
		require.False(t, b.take(gone, 1), "nobody waits for an answer any more")
		require.Equal(t, 10, b.left)
	})
}
