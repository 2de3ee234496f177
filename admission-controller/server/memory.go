package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// memory limits the bytes of large bodies, reserved as a body grows.
//
// Bodies that each hold a part and wait for the rest would deadlock. Therefore the size of one
// whole body is a reserve for one body at a time, which can always be read to its end. The
// namespace with the fewest bytes is served first, then by arrival. A namespace with many large
// bodies therefore delays others by at most one of them.
type memory struct {
	mu           sync.Mutex
	free         int
	reserve      int
	reserveOwner *reservation   // of the reserve, nil: none
	heldBy       map[string]int // bytes by namespace, without zeros
	waiting      []*reservation // sorted by number
	number       uint64         // of the latest reservation
}

// reservation is the part of a memory held by one body. It is used by one goroutine.
type reservation struct {
	*memory
	namespace string
	number    uint64 // order of arrival
	held      int
	requested int           // requested bytes
	granted   chan struct{} // closed when requested bytes are granted
}

func newMemory(whole, reserve int) *memory {
	return &memory{free: whole, reserve: reserve, heldBy: map[string]int{}}
}

// open returns an empty reservation of a namespace. It must be closed.
func (m *memory) open(namespace string) *reservation {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number++
	return &reservation{memory: m, namespace: namespace, number: m.number}
}

// grow waits until the reservation holds size bytes, at most the reserve. It is false if ctx ended.
func (s *reservation) grow(ctx context.Context, size int) bool {
	if ctx.Err() != nil {
		return false
	}
	s.mu.Lock()
	s.requested, s.granted = size-s.held, make(chan struct{})
	if (len(s.waiting) == 0 || s.reserveOwner == s) && s.grant(s) {
		s.mu.Unlock()
		return true
	}
	at, _ := slices.BinarySearchFunc(s.waiting, s, func(a, b *reservation) int { return cmp.Compare(a.number, b.number) })
	s.waiting = slices.Insert(s.waiting, at, s)
	s.grantWaiting()
	s.mu.Unlock()
	select {
	case <-s.granted:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.waiting, s); at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
		s.grantWaiting() // later ones may need less
		return false
	}
	return true // granted at the same moment
}

func (s *reservation) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += s.held
	if s.heldBy[s.namespace] -= s.held; s.heldBy[s.namespace] == 0 {
		delete(s.heldBy, s.namespace)
	}
	s.held = 0
	if s.reserveOwner == s {
		s.reserveOwner = nil
	}
	s.grantWaiting()
}

// grantWaiting grants reservations until the next one has to wait. The caller holds the mutex.
func (m *memory) grantWaiting() {
	for len(m.waiting) > 0 {
		next := slices.MinFunc(m.waiting, func(a, b *reservation) int { return cmp.Compare(m.heldBy[a.namespace], m.heldBy[b.namespace]) })
		if !m.grant(next) {
			return
		}
		close(next.granted)
		m.waiting = slices.DeleteFunc(m.waiting, func(s *reservation) bool { return s == next })
	}
}

// grant gives a reservation its requested bytes if it owns or can take the reserve, or if enough
// remains for the reserve owner. The caller holds the mutex.
func (m *memory) grant(s *reservation) bool {
	needed := m.reserve
	if m.reserveOwner != nil {
		needed -= m.reserveOwner.held
	}
	if m.free-s.requested < needed {
		if m.reserveOwner != nil && m.reserveOwner != s {
			return false
		}
		m.reserveOwner = s
	}
	m.free -= s.requested
	s.held += s.requested
	m.heldBy[s.namespace] += s.requested
	return true
}
