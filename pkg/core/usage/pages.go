package usage

// Pages is a list that grows by pages: what it holds stays where it is, nothing is
// copied when a cluster comes in, and no more than a page is spare. Its zero value
// is empty.
type Pages[I ~int32, T any] struct {
	pages []*[pageSize]T
	used  I
}

const (
	pageBits = 6
	pageSize = 1 << pageBits
)

// At returns the slot with an index, which must be below Len.
func (p *Pages[I, T]) At(i I) *T { return &p.pages[i>>pageBits][i&(pageSize-1)] }

// Len returns the number of slots.
func (p *Pages[I, T]) Len() I { return p.used }

// Add returns the index of a new slot at the end. It holds the zero value, unless
// Cut left something there.
func (p *Pages[I, T]) Add() I {
	if int(p.used) == len(p.pages)*pageSize {
		p.pages = append(p.pages, new([pageSize]T))
	}
	p.used++
	return p.used - 1
}

// Cut drops the slots from an index on, and the memory of whole pages of them.
func (p *Pages[I, T]) Cut(end I) {
	pages := (int(end) + pageSize - 1) / pageSize
	clear(p.pages[pages:])
	p.pages, p.used = p.pages[:pages], end
}
