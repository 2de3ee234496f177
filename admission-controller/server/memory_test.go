package server

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMemory_GrowingBodiesAllComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(40, 8)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var reading sync.WaitGroup
		var whole atomic.Int32
		for range 100 {
			reading.Go(func() {
				s := m.open("")
				defer s.close()
				for size := 1; size <= 8; size *= 2 {
					if !s.grow(ctx, size) {
						return
					}
					time.Sleep(10 * time.Millisecond) // lets the others take their part
				}
				whole.Add(1)
			})
		}
		reading.Wait()
		require.EqualValues(t, 100, whole.Load())
		require.Equal(t, 40, m.free)
		require.Nil(t, m.reserveOwner)
	})
}

func TestMemory_NeverOverdrawnAndServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(20, 10)
		grows := func(s *reservation, size int, atMost time.Duration) <-chan bool {
			got := make(chan bool, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), atMost)
				defer cancel()
				got <- s.grow(ctx, size)
			}()
			synctest.Wait()
			return got
		}
		first, second, third, fourth := m.open(""), m.open(""), m.open(""), m.open("")
		require.True(t, <-grows(first, 10, time.Second))
		require.True(t, <-grows(second, 5, time.Second), "the reserve is free")
		later := grows(fourth, 1, time.Minute)
		require.Empty(t, later, "the reserve belongs to the second")
		sooner := grows(third, 10, time.Minute)
		first.close()
		require.True(t, <-sooner, "it came first, and leaves what the second may still need")
		synctest.Wait()
		require.Empty(t, later)
		require.True(t, <-grows(second, 10, time.Second), "who has the reserve waits for nobody")
		require.Zero(t, m.free)
		second.close()
		require.True(t, <-later)
		require.False(t, <-grows(m.open(""), 9, time.Second))
		require.Equal(t, 9, m.free)
		third.close()
		fourth.close()
		require.Equal(t, 20, m.free)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, m.open("").grow(gone, 1), "nobody waits for an answer any more")
		require.Equal(t, 20, m.free)
	})
}

// A namespace with many waiting bodies delays others by at most one of them.
func TestMemory_ServesNamespaceWithLeastFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(20, 5)
		var inUse []*reservation
		for range 4 {
			s := m.open("hog")
			require.True(t, s.grow(t.Context(), 5))
			inUse = append(inUse, s)
		}
		var order []string
		for _, namespace := range []string{"hog", "hog", "shop", "cart"} {
			s := m.open(namespace)
			go func() {
				if s.grow(t.Context(), 5) {
					order = append(order, namespace)
				}
			}()
			synctest.Wait()
		}
		for _, s := range inUse {
			s.close()
			synctest.Wait()
		}
		require.Equal(t, []string{"shop", "cart", "hog", "hog"}, order)
		require.Equal(t, map[string]int{"hog": 10, "shop": 5, "cart": 5}, m.heldBy)
	})
}
