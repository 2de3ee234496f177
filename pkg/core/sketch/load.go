package sketch

import (
	"fmt"
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/histogram"
	"loadline.dev/loadline/pkg/core/resources"
)

// LoadShape is what the load of containers has in common. It does not change once
// made; make one for a recipe and share it.
type LoadShape struct {
	pairShape
	kind       resources.Kind
	shares     [2]float64
	byLoad     bool
	hour       bool
	sustained  time.Duration
	throttling bool
	sizes      sizes // of what is Tracked
	names      [2]string
}

// schemes are the buckets: the first has two millicores or 256 KiB, each further one is 5 % larger.
var schemes = [resources.Kinds]*histogram.Scheme{
	resources.CPU:    histogram.Exponential(0.002, 1.05, 1000, lightest),
	resources.Memory: histogram.Exponential(1<<18, 1.05, 1e13, lightest),
}

// units are a core and a byte, in amounts.
var units = [resources.Kinds]float64{resources.CPU: 1000, resources.Memory: 1}

// Average is the share that stands for the mean.
const Average = -1

// NewLoadShape returns the shape of a slow and a fast histogram that forget half in the given times, of each of which a
// share is of interest. By load a share is that of all work, else that of the time. With hour the highest value of the
// last hour counts.
func NewLoadShape(k resources.Kind, halfLives [2]time.Duration, shares [2]float64, byLoad, hour bool) *LoadShape {
	s := &LoadShape{pairShape: pairShape{schemes[k], halfLives, mostWeights}, kind: k, shares: shares, byLoad: byLoad, hour: hour}
	of := map[bool]string{true: "load", false: "time"}[byLoad]
	for i, h := range halfLives {
		s.names[i] = fmt.Sprintf("%v of the %s, half-life %gh", shares[i], of, h.Hours())
		if shares[i] == Average {
			s.names[i] = fmt.Sprintf("mean, half-life %gh", h.Hours())
		}
	}
	return s
}

// Sustained returns the shape with one more condition on its levels: use must have been as high as a level for a time
// in all, of which half is forgotten like the use itself. So no single burst of less counts, however much work it was.
// 0 = no condition. Means have none.
func (s *LoadShape) Sustained(length time.Duration) *LoadShape {
	if length == 0 {
		return s
	}
	longer := *s
	longer.sustained = length
	for i := range longer.names {
		if s.shares[i] != Average {
			longer.names[i] += fmt.Sprintf(", exceeded for %g min in all", length.Minutes())
		}
	}
	return &longer
}

// Throttling returns the shape of a load of CPU in which work counts that a limit held back, where that is known.
func (s *LoadShape) Throttling() *LoadShape {
	counts := *s
	counts.throttling = true
	return &counts
}

// newPart is the part of its age for which use must have been high in a container that is
// new, where that is less: what is there from the first minute on counts at once.
const newPart = 0.25

// least returns the part of all weight that must lie at a level and above in a
// histogram, for a container of some age in nanoseconds.
func (s *LoadShape) least(i int, age float64) float64 {
	switch {
	case s.sustained == 0:
		return 0
	case age <= 0:
		return newPart
	}
	asked, halfLife := min(float64(s.sustained), newPart*age), float64(s.halfLives[i])
	watched := halfLife / math.Ln2 * -math.Expm1(-math.Ln2*age/halfLife)
	return asked / watched
}

// Kind returns the kind whose load it is.
func (s *LoadShape) Kind() resources.Kind { return s.kind }

// Name says in words what Level(i) is.
func (s *LoadShape) Name(i int) string { return s.names[i] }

// Load is the use of one kind by one container, as two histograms: of CPU the samples but
// those of a start, where more than the limit was wanted as twice the limit (demand.go), and
// of memory the highest in each five minutes. Make it with newLoad.
type Load struct {
	shape  *LoadShape
	uses   pair
	slots  [slots]uint16 // highest level of each slot, code of the scale of the kind; 0 = none
	latest int64         // number of the slot that is open
	peak   float64       // of memory in that slot
	first  int64         // nanoseconds since 1970 of the first use; 0 = none, or not known
}

// The last hour is kept in slots of five minutes.
const (
	slots     = 12
	slotWidth = int64(5 * time.Minute)
)

// newLoad returns an empty one.
func newLoad(shape *LoadShape) *Load { return &Load{shape: shape} }

// Observe takes a use in millicores or bytes. All samples weigh the same, as they come at a steady pace: one a minute.
func (l *Load) Observe(at int64, use float64) {
	if at = max(at, 1); l.first == 0 || at < l.first {
		l.first = at
	}
	number := at / slotWidth
	if l.shape.kind == resources.Memory {
		if number > l.latest {
			l.closeSlot()
		}
		l.peak = max(l.peak, use)
	} else {
		l.uses.add(&l.shape.pairShape, at, use/units[l.shape.kind])
	}
	advanceRing(&l.latest, number, l.slots[:])
	if l.shape.hour {
		slot := &l.slots[l.latest%slots]
		*slot = max(*slot, scales[l.shape.kind].encode(max(l.Level(0, at), l.Level(1, at))))
	}
}

// Level returns the share of interest of the slow (0) or the fast (1) histogram at an instant, in millicores or bytes.
func (l *Load) Level(i int, now int64) float64 {
	s := l.shape
	if s.shares[i] == Average {
		return l.uses.mean(&s.pairShape, i) * units[s.kind]
	}
	return l.uses.share(&s.pairShape, i, s.shares[i], s.byLoad, s.least(i, float64(now-l.first))) * units[s.kind]
}

// Hour returns the highest level of the last hour, 0 if that is not kept.
func (l *Load) Hour() float64 { return scales[l.shape.kind].decode(slices.Max(l.slots[:])) }

// adapt keeps what has the same half-lives.
func (l *Load) adapt(shape *LoadShape) *Load {
	switch {
	case shape == nil:
		return nil
	case l == nil || l.shape.halfLives != shape.halfLives:
		return newLoad(shape)
	case !shape.hour:
		clear(l.slots[:])
	}
	l.shape = shape
	return l
}

// merge adds another one with the same half-lives.
func (l *Load) merge(o *Load) {
	l.uses.merge(&l.shape.pairShape, &o.uses)
	switch {
	case o.latest > l.latest:
		l.closeSlot()
		l.peak = o.peak
	case o.latest == l.latest:
		l.peak = max(l.peak, o.peak)
	case o.peak > 0:
		l.uses.add(&l.shape.pairShape, (o.latest+1)*slotWidth-1, o.peak)
	}
	mergeRings(&l.latest, l.slots[:], o.latest, o.slots[:])
	if l.first == 0 || o.first != 0 && o.first < l.first {
		l.first = o.first
	}
}

// closeSlot lets the peak of the open slot count.
func (l *Load) closeSlot() {
	if l.peak > 0 {
		l.uses.add(&l.shape.pairShape, (l.latest+1)*slotWidth-1, l.peak)
		l.peak = 0
	}
}

func (l *Load) write(w *imageWriter) {
	w.Int(int64(l.shape.halfLives[0]))
	w.Int(int64(l.shape.halfLives[1]))
	l.uses.write(w)
	w.Int(l.latest)
	w.Codes(l.slots[:])
	w.Float(l.peak)
	w.Int(l.first)
}

func (l *Load) read(r *imageReader) {
	if r.other = [2]time.Duration{time.Duration(r.Int()), time.Duration(r.Int())} != l.shape.halfLives; r.other {
		return
	}
	l.uses.read(&l.shape.pairShape, r)
	l.latest = r.Within(0, mostNumber)
	r.Scaled(&scales[l.shape.kind], l.slots[:])
	l.peak = r.Float()
	if !r.Empty() { // else it was written before the first use was kept: Read takes that of the sketch
		l.first = r.Within(0, math.MaxInt64)
	}
	if !l.shape.hour {
		clear(l.slots[:])
	}
}

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
