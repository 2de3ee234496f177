package sketch

// part is one thing that sketches remember.
type part interface {
	// needed reports whether it is.
	needed(t *Sketch) bool
	merge(t, o *Sketch)
	// write adds it to an image, or nothing where nothing is known.
	write(t *Sketch, w *imageWriter)
	// read takes it from an image, and reports whether it is needed and what it was.
	read(t *Sketch, r *imageReader) bool
}

// record is what a sketch has a pointer to: P, nil where it is not needed.
type record[P any] interface {
	*P
	merge(o *P)
	write(w *imageWriter)
	read(r *imageReader)
}

// kept is the part that is such a record.
type kept[P any, T record[P]] struct{ field func(*Sketch) T }

func keep[P any, T record[P]](field func(*Sketch) T) part { return kept[P, T]{field} }

func (p kept[P, T]) needed(t *Sketch) bool { return p.field(t) != nil }

func (p kept[P, T]) merge(t, o *Sketch) {
	if m, other := p.field(t), p.field(o); m != nil && other != nil {
		m.merge(other)
	}
}

func (p kept[P, T]) write(t *Sketch, w *imageWriter) {
	if m := p.field(t); m != nil {
		m.write(w)
	}
}

func (p kept[P, T]) read(t *Sketch, r *imageReader) bool {
	m := p.field(t)
	if m != nil {
		m.read(r)
	}
	return m != nil && !r.other
}

// put changes a memory to what it must be, and reports whether it begins anew.
func put[P any](m **P, to *P) (anew bool) {
	anew = to != nil && to != *m
	*m = to
	return anew
}

// same returns a memory if it is needed, an empty one in place of none.
func same[P any](needed bool, m *P) *P {
	switch {
	case !needed:
		return nil
	case m == nil:
		return new(P)
	}
	return m
}

// declared is the part that is one number of what pods are created with, 0 = not known.
type declared struct {
	number func(*Sketch) *uint16
	scale  *scale // of the number; nil: it is no code
	wanted func(*Sketch) bool
}

func (d declared) needed(t *Sketch) bool { return d.wanted(t) }

func (d declared) merge(t, o *Sketch) {
	if d.needed(t) && *d.number(t) == 0 {
		*d.number(t) = *d.number(o)
	}
}

func (d declared) write(t *Sketch, w *imageWriter) {
	if n := *d.number(t); n != 0 {
		w.Int(int64(n))
	}
}

func (d declared) read(t *Sketch, r *imageReader) bool {
	if d.needed(t) {
		*d.number(t) = r.Code(d.scale)
	}
	return d.needed(t)
}
