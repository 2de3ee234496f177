package usage

// slots is a list that grows by pages: what it holds stays where it is, nothing is
// copied when a cluster comes in, and no more than a page is spare.
type slots[I ~int32, T any] struct {
	pages []*[pageSize]T
	used  I
}

const (
	pageBits = 6
	pageSize = 1 << pageBits
)

// at returns the slot with an index.
func (s *slots[I, T]) at(i I) *T { return &s.pages[i>>pageBits][i&(pageSize-1)] }

// add returns the index of a new slot.
func (s *slots[I, T]) add() I {
	if int(s.used) == len(s.pages)*pageSize {
		s.pages = append(s.pages, new([pageSize]T))
	}
	s.used++
	return s.used - 1
}

// cut drops the slots from an index on. Those of the last page that is left come back
// as they are.
func (s *slots[I, T]) cut(end I) {
	pages := (int(end) + pageSize - 1) / pageSize
	clear(s.pages[pages:])
	s.pages, s.used = s.pages[:pages], end
}
