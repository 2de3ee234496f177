package sketch

// TrackedShape is what the tracked load of containers has in common. It does not change
// once made.
type TrackedShape struct{ *LoadShape }

// sizes are levels of the other load, in millicores: from and until when a container is large.
type sizes struct{ from, until float64 }

// NewTrackedShape returns the shape of a second load. It counts for a container from when
// the level of its Load is above an amount of millicores, until that is below another
// one. It has less room than Load: where uses differ by more than the tenfold, neighbouring
// buckets become one.
func NewTrackedShape(shape *LoadShape, from, until float64) *TrackedShape {
	small := *shape
	small.most, small.sizes = fewWeights, sizes{from, until}
	return &TrackedShape{&small}
}

// Tracked is the load of a container once more, under shapes that forget faster: for those
// that are large. Make it with newTracked.
type Tracked struct {
	Load
	large bool
}

// newTracked returns an empty one.
func newTracked(shape *TrackedShape) *Tracked {
	return &Tracked{Load: Load{shape: shape.LoadShape}}
}

// observe takes a use in millicores, which the other load has taken already. Every five
// minutes it is decided anew whether the container is large: so that depends on its use
// alone, and not on who asks and when.
func (t *Tracked) observe(at int64, use float64, other *Load) {
	if at/slotWidth > t.latest {
		level := max(other.Level(0, at), other.Level(1, at))
		t.large = level > t.shape.sizes.from || t.large && level >= t.shape.sizes.until
	}
	t.Observe(at, use)
}

// Large reports whether the container is large, so that this load counts.
func (t *Tracked) Large() bool { return t.large }

// adapt keeps what has the same half-lives.
func (t *Tracked) adapt(shape *TrackedShape) *Tracked {
	switch {
	case shape == nil:
		return nil
	case t == nil || t.shape.halfLives != shape.halfLives:
		return newTracked(shape)
	}
	t.Load.adapt(shape.LoadShape)
	return t
}

// merge adds another one with the same half-lives. Whether the container is large is as
// in the later.
func (t *Tracked) merge(o *Tracked) {
	if o.latest > t.latest {
		t.large = o.large
	}
	t.Load.merge(&o.Load)
}

func (t *Tracked) write(w *imageWriter) {
	large := int64(0)
	if t.large {
		large = 1
	}
	w.Int(large)
	t.Load.write(w)
}

func (t *Tracked) read(r *imageReader) {
	large := r.Within(0, 1)
	if t.Load.read(r); !r.other {
		t.large = large == 1
	}
}
