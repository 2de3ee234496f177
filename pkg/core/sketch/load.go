package sketch

import (
	"fmt"
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/histogram"
	"loadline.dev/loadline/pkg/core/resources"
)

// LoadShape holds the parameters that all loads of a recipe share. It is immutable.
type LoadShape struct {
	pairShape
	kind       resources.Kind
	shares     [2]float64
	byLoad     bool
	hour       bool
	sustained  time.Duration
	throttling bool
	thresholds largeThresholds // for a tracked load
	names      [2]string
}

// The first bucket is two millicores or 256 KiB, each further one is 5% larger.
var schemes = [resources.Kinds]*histogram.Scheme{
	resources.CPU:    histogram.NewExponentialScheme(0.002, 1.05, 1000, minWeight),
	resources.Memory: histogram.NewExponentialScheme(1<<18, 1.05, 1e13, minWeight),
}

// units are one core and one byte as amounts.
var units = [resources.Kinds]float64{resources.CPU: 1000, resources.Memory: 1}

// Average in place of a share selects the mean.
const Average = -1

// NewLoadShape returns the shape of a slow and a fast histogram. Each share refers to total usage
// with byLoad, else to time. With hour, the load also keeps the highest level of the last hour.
func NewLoadShape(k resources.Kind, halfLives [2]time.Duration, shares [2]float64, byLoad, hour bool) *LoadShape {
	s := &LoadShape{pairShape: pairShape{schemes[k], halfLives, maxLoadWeights}, kind: k, shares: shares, byLoad: byLoad, hour: hour}
	of := map[bool]string{true: "load", false: "time"}[byLoad]
	for i, h := range halfLives {
		s.names[i] = fmt.Sprintf("%v of the %s, half-life %gh", shares[i], of, h.Hours())
		if shares[i] == Average {
			s.names[i] = fmt.Sprintf("mean, half-life %gh", h.Hours())
		}
	}
	return s
}

// Sustained adds a condition: usage must have reached a level for a total time of length, which
// decays like the usage, so that a shorter burst does not count. 0 = no condition. Means ignore it.
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

// Throttling returns the shape of a CPU load that includes the demand hidden by throttling.
func (s *LoadShape) Throttling() *LoadShape {
	counts := *s
	counts.throttling = true
	return &counts
}

// For a new container, usage must have been high for this share of its age, if that is less than
// the sustained time. Usage from the first minute on then counts at once.
const newContainerShare = 0.25

// minWeightShare returns the minimum share of weight at or above a level, at an age in nanoseconds.
func (s *LoadShape) minWeightShare(i int, age float64) float64 {
	switch {
	case s.sustained == 0:
		return 0
	case age <= 0:
		return newContainerShare
	}
	asked, halfLife := min(float64(s.sustained), newContainerShare*age), float64(s.halfLives[i])
	watched := halfLife / math.Ln2 * -math.Expm1(-math.Ln2*age/halfLife)
	return asked / watched
}

// Kind returns the resource of the load.
func (s *LoadShape) Kind() resources.Kind { return s.kind }

// Name describes Level(i).
func (s *LoadShape) Name(i int) string { return s.names[i] }

// Load keeps the usage of one resource of a container in two histograms. For CPU these hold all
// samples except container starts, with capped usage replaced by the estimated demand. For memory
// they hold the peak of each five minutes.
type Load struct {
	shape  *LoadShape
	uses   pair
	slots  [slots]uint16 // scale code of the highest level in each slot, 0 = none
	latest int64         // number of the open slot
	peak   float64       // peak memory in the open slot
	first  int64         // first usage in ns since 1970, 0 = none or unknown
}

const (
	slots     = 12
	slotWidth = int64(5 * time.Minute)
)

func newLoad(shape *LoadShape) *Load { return &Load{shape: shape} }

// Observe adds a sample in millicores or bytes. All weigh the same, as they arrive once a minute.
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

// Level returns a level of the slow (0) or fast (1) histogram, in millicores or bytes.
func (l *Load) Level(i int, now int64) float64 {
	s := l.shape
	if s.shares[i] == Average {
		return l.uses.mean(&s.pairShape, i) * units[s.kind]
	}
	return l.uses.share(&s.pairShape, i, s.shares[i], s.byLoad, s.minWeightShare(i, float64(now-l.first))) * units[s.kind]
}

// Hour returns the highest level of the last hour, 0 if it is not kept.
func (l *Load) Hour() float64 { return scales[l.shape.kind].decode(slices.Max(l.slots[:])) }

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
	if r.mismatch = [2]time.Duration{time.Duration(r.Int()), time.Duration(r.Int())} != l.shape.halfLives; r.mismatch {
		return
	}
	l.uses.read(&l.shape.pairShape, r)
	l.latest = r.Within(0, maxSlotNumber)
	r.Scaled(&scales[l.shape.kind], l.slots[:])
	l.peak = r.Float()
	if !r.Empty() { // else Read takes it from the sketch
		l.first = r.Within(0, math.MaxInt64)
	}
	if !l.shape.hour {
		clear(l.slots[:])
	}
}

// Parts is a set of sketch parts.
type Parts uint32

// AllParts is the set of all sketch parts.
const AllParts = ^Parts(0)

// renewable is a part with usage, which lacks the usage from before a reset.
type renewable interface {
	isReset(before, after *Sketch) bool
}

func (p pointerPart[P, T]) isReset(before, after *Sketch) bool {
	return p.field(after) != nil && p.field(after) != p.field(before)
}

func (pressurePart) isReset(before, after *Sketch) bool {
	return after.needsPressure && !before.needsPressure
}

// AdaptParts is Adapt, and returns the parts that were reset.
func (t *Sketch) AdaptParts(n Needs) (anew Parts) {
	before := *t
	t.Adapt(n)
	for i := range parts {
		if p, holds := parts[i].part.(renewable); holds && p.isReset(&before, t) {
			anew |= 1 << i
		}
	}
	return anew
}

// MergeParts is Merge for some parts. The others remain unchanged.
func (t *Sketch) MergeParts(o *Sketch, which Parts) {
	if which == 0 {
		return
	}
	t.mergeStarts(o)
	t.Now = max(t.Now, o.Now)
	for k := range t.firstUsage {
		if t.firstUsage[k] == 0 || o.firstUsage[k] != 0 && o.firstUsage[k] < t.firstUsage[k] {
			t.firstUsage[k] = o.firstUsage[k]
		}
	}
	for i := range parts {
		if which&(1<<i) != 0 {
			parts[i].merge(t, o)
		}
	}
}
