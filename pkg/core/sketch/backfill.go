package sketch

// Parts is a set of parts of a sketch.
type Parts uint32

// AllParts are all parts that a sketch can have.
const AllParts = ^Parts(0)

// renewable is a part that holds usage, so that it can lack the usage from before it began.
type renewable interface {
	renewed(before, after *Sketch) bool
}

func (p kept[P, T]) renewed(before, after *Sketch) bool {
	return p.field(after) != nil && p.field(after) != p.field(before)
}

func (pressure) renewed(before, after *Sketch) bool { return after.waits && !before.waits }

// AdaptParts is Adapt. It returns the parts that begin anew.
func (t *Sketch) AdaptParts(n Needs) (anew Parts) {
	before := *t
	t.Adapt(n)
	for i := range parts {
		if p, holds := parts[i].part.(renewable); holds && p.renewed(&before, t) {
			anew |= 1 << i
		}
	}
	return anew
}

// MergeParts is Merge for some parts. The others stay as they are.
func (t *Sketch) MergeParts(o *Sketch, which Parts) {
	if which == 0 {
		return
	}
	t.mergeStarts(o)
	t.Now = max(t.Now, o.Now)
	for k := range t.begun {
		if t.begun[k] == 0 || o.begun[k] != 0 && o.begun[k] < t.begun[k] {
			t.begun[k] = o.begun[k]
		}
	}
	for i := range parts {
		if which&(1<<i) != 0 {
			parts[i].merge(t, o)
		}
	}
}
