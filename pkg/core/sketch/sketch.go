// Package sketch keeps compact summaries of a container's usage that recipes ask for
// and the histograms of a profile do not hold.
//
// A Sketch has the parts that a recipe needs: DailyPeaks are the highest memory use in windows of six hours, Kills the
// last OOM kills, Load, Tracked and Models histograms that forget, Points, Hours and Weighted the usage of the last
// days. Pressed is there only where somebody knows how long CPU work waited. LimitRatio and the declared request are no
// usage, but what pods were created with: they are here because they must outlive the pods, and a restart.
//
// Samples and kills fill a sketch as they come; it knows no recipe. Two sketches can be merged, Adapt makes a sketch
// serve another recipe, and Image is its form on disk: Read makes the same sketch of it, to the bit.
//
// To remember something new, write it in a file of its own: a type with merge, write and read (see part). In this
// one add its field to Needs and Sketch, its line to parts, what Adapt does with it, and what observe
// gives it. Merge, image, restore and checkpoint follow from parts. Only some need more:
//
//   - what is of one kind: Only drops it
//   - what keeps time of its own: later (image.go) knows it
//   - what is of CPU and may be used together with Start: forgetStarts (demand.go) clears it
//   - what is no sample of usage: a method that the recommender (recommender/recommend/keeper.go) and the replay
//     (pkg/core/replay/recommender.go) call
package sketch

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Needs says what a recipe wants to know.
type Needs struct {
	Peaks      bool                        // of memory
	Load       [resources.Kinds]*LoadShape // nil = none
	Tracked    *TrackedShape               // of CPU, besides its Load; nil = none
	Points     bool                        // of both kinds
	Mean       bool                        // points are means of the pods; else of the pod that uses most
	Hours      [resources.Kinds]bool
	Pressure   bool // with hours of CPU: also hours of its use and the time that work waited, where that is known
	Weighted   *WeightedShape
	Models     [resources.Kinds]*ModelShape // nil = none
	Kills      bool
	LimitRatio bool          // of memory
	Declared   time.Duration // for how long a new container keeps its memory request, in whole minutes; 0 = not at all. With Peaks only
	Start      time.Duration // for how long the CPU use of a container that begins does not count, see Starting; 0 = it counts. With Load, Tracked and Hours only
}

// Throttling reports whether it is of interest for how long CPU limits were reached.
func (n Needs) Throttling() bool { return n.Load[cpu] != nil && n.Load[cpu].throttling }

// Only returns the needs without the parts that only know another kind than k. Parts that keep when
// something was seen are of both kinds, and stay.
func (n Needs) Only(k resources.Kind) Needs {
	for other := range resources.Kind(resources.Kinds) {
		if other != k {
			n.Load[other], n.Hours[other], n.Models[other] = nil, false, nil
		}
	}
	if k == cpu {
		n.Peaks, n.Declared = false, 0
	} else {
		n.Tracked, n.Pressure = nil, false
	}
	return n
}

// Any reports whether anything is needed.
func (n *Needs) Any() bool { return *n != Needs{} }

// Sketch is what was needed, filled. What was not is nil.
type Sketch struct {
	Peaks      *DailyPeaks
	Load       [resources.Kinds]*Load
	Tracked    *Tracked // of CPU
	Points     [resources.Kinds]*Points
	Hours      [resources.Kinds]*Hours
	Weighted   [resources.Kinds]*Weighted
	Models     [resources.Kinds]*Models
	Kills      *Kills
	Pressed    *Hours     // of CPU use and the time that work waited; nil = that was never known
	LimitRatio LimitRatio // of memory, as last seen
	waits      bool       // Pressed is wanted
	flags      flags
	throttled  throttled              // of CPU
	declared   uint16                 // memory request when the container was new, coded; 0 = not known
	declaredIn uint16                 // minutes for which it matters
	Now        int64                  // nanoseconds since 1970: when it is read, or was written last
	begun      [resources.Kinds]int64 // first use that all parts know; 0 = none
}

// flags are what is true of a sketch.
type flags uint8

const (
	limited    flags = 1 << iota // LimitRatio is wanted
	sparing                      // starts do not count where anything else is known of CPU
	onlyStarts                   // of CPU nothing else is known
)

func (f *flags) has(flag flags) bool { return *f&flag != 0 }

func (f *flags) set(flag flags, is bool) {
	*f &^= flag
	if is {
		*f |= flag
	}
}

const cpu, ram = resources.CPU, resources.Memory

// parts are all that a sketch can have, in the order that they have in images.
var parts = [...]struct {
	number int64          // in images: it is never used for anything else, 1 is the frame, and the next is 31
	begins resources.Kind // of which an older image knows nothing where it lacks this part: what is known begins anew; none: recipes do without
	part
}{
	{25, ram, keep(func(t *Sketch) *DailyPeaks { return t.Peaks })},
	{3, none, keep(func(t *Sketch) *Kills { return t.Kills })},
	{24, none, pressure{}},
	{15, none, declared{func(t *Sketch) *uint16 { return (*uint16)(&t.LimitRatio) }, nil, func(t *Sketch) bool { return t.flags.has(limited) }}},
	{26, none, declared{func(t *Sketch) *uint16 { return &t.declared }, &scales[ram], func(t *Sketch) bool { return t.declaredIn > 0 }}},
	{18, none, starts{}},
	{27, none, throttling{}},
	{28, cpu, keep(func(t *Sketch) *Load { return t.Load[cpu] })},
	{30, cpu, keep(func(t *Sketch) *Tracked { return t.Tracked })},
	{12, cpu, keep(func(t *Sketch) *Models { return t.Models[cpu] })},
	{20, cpu, keep(func(t *Sketch) *Points { return t.Points[cpu] })},
	{22, cpu, keep(func(t *Sketch) *Hours { return t.Hours[cpu] })},
	{10, cpu, keep(func(t *Sketch) *Weighted { return t.Weighted[cpu] })},
	{29, ram, keep(func(t *Sketch) *Load { return t.Load[ram] })},
	{13, ram, keep(func(t *Sketch) *Models { return t.Models[ram] })},
	{21, ram, keep(func(t *Sketch) *Points { return t.Points[ram] })},
	{23, ram, keep(func(t *Sketch) *Hours { return t.Hours[ram] })},
	{11, ram, keep(func(t *Sketch) *Weighted { return t.Weighted[ram] })},
}

// coded is a part of older images, whose codes are powers of codeStep.
type coded struct {
	present int64   // number of the part today
	unit    float64 // of the codes, in parts of a millicore or byte
}

// formerParts has the parts of older images by the numbers that they have there.
var formerParts = map[int64]coded{
	2: {25, 1}, 16: {26, 1}, 19: {27, 1}, 4: {28, 1000}, 5: {29, 1000}, 17: {30, 1000},
	6: {20, 1000}, 7: {21, 1000}, 8: {22, 1000}, 9: {23, 1000}, 14: {24, 1000},
}

// none is for parts without which a container is known as well.
const none resources.Kind = resources.Kinds

// New returns an empty sketch.
func New(n Needs) *Sketch {
	t := &Sketch{}
	t.Adapt(n)
	return t
}

// Adapt makes a sketch what another recipe needs. What both want to know it keeps;
// what only the new one does begins anew, and what is not needed is dropped.
func (t *Sketch) Adapt(n Needs) {
	anew := [resources.Kinds]bool{
		cpu: put(&t.Tracked, t.Tracked.adapt(n.Tracked)),
		ram: put(&t.Peaks, same(n.Peaks, t.Peaks)),
	}
	for k := range resources.Kind(resources.Kinds) {
		anew[k] = put(&t.Load[k], t.Load[k].adapt(n.Load[k])) || anew[k]
		anew[k] = put(&t.Models[k], t.Models[k].adapt(n.Models[k])) || anew[k]
		anew[k] = put(&t.Points[k], t.Points[k].adapt(k, n.Points, n.Mean)) || anew[k]
		anew[k] = put(&t.Hours[k], t.Hours[k].adapt(k, n.Hours[k])) || anew[k]
		anew[k] = put(&t.Weighted[k], t.Weighted[k].adapt(k, n.Weighted)) || anew[k]
		if anew[k] {
			t.begun[k] = 0
		}
	}
	put(&t.Kills, same(n.Kills, t.Kills))
	if t.waits = n.Pressure && n.Hours[cpu]; !t.waits {
		t.Pressed = nil
	}
	if !t.countsThrottling() {
		t.throttled = throttled{}
	}
	t.flags.set(limited, n.LimitRatio)
	if !n.LimitRatio {
		t.LimitRatio = Unseen
	}
	t.flags.set(sparing, n.Start > 0)
	t.flags.set(onlyStarts, n.Start > 0 && t.flags.has(onlyStarts))
	if t.declaredIn = uint16(min(n.Declared/time.Minute, math.MaxUint16)); t.declaredIn == 0 {
		t.declared = 0
	}
}

// Covers returns the time from the first to the last use of a kind, and false if
// there is none: since then all is known that was needed.
func (t *Sketch) Covers(k resources.Kind) (time.Duration, bool) {
	return time.Duration(max(t.Now-t.begun[k], 0)), t.begun[k] != 0
}

// Observe is ObservePod for a workload of one pod.
func (t *Sketch) Observe(at time.Time, k resources.Kind, use, limit resources.Amount) {
	t.ObservePod("", at, k, use, limit)
}

// ObservePod takes the use of a kind at an instant, in millicores or bytes, of the pod
// with a name; limit is what it could have at most, 0 = no limit.
func (t *Sketch) ObservePod(pod string, at time.Time, k resources.Kind, use, limit resources.Amount) {
	t.ObserveUse(pod, at, k, Use{Amount: use, Limit: limit})
}

// ObserveUse is ObservePod for a use of which more may be known.
func (t *Sketch) ObserveUse(pod string, at time.Time, k resources.Kind, u Use) {
	if k == cpu {
		t.forgetStarts()
	}
	t.observe(pod, at, k, u)
}

func (t *Sketch) observe(pod string, at time.Time, k resources.Kind, u Use) {
	instant, value := at.UnixNano(), float64(u.Amount)
	t.saw(k, instant)
	demanded, throttled := value, 0.0
	if k == cpu {
		demanded, throttled = t.demand(instant, u)
	}
	if k == ram && t.Peaks != nil {
		t.Peaks.Observe(instant, value)
	}
	if k == cpu && t.Pressed != nil {
		t.Pressed.Observe(instant, value) // Waited raises it
	}
	if l := t.Load[k]; l != nil {
		l.Observe(instant, demanded)
	}
	if k == cpu && t.Tracked != nil {
		t.Tracked.observe(instant, demanded, t.Load[cpu])
	}
	if throttled > 0 {
		t.throttled.raised(instant, throttled, t.loadThatCounts())
	}
	if m := t.Models[k]; m != nil {
		m.Observe(instant, demanded)
	}
	if p := t.Points[k]; p != nil {
		p.Observe(instant, value, pod)
	}
	if h := t.Hours[k]; h != nil {
		h.Observe(instant, value)
	}
	if w := t.Weighted[k]; w != nil {
		w.Observe(instant, value)
	}
}

// saw notes that something was seen of a kind.
func (t *Sketch) saw(k resources.Kind, at int64) {
	t.Now = max(t.Now, at)
	if t.begun[k] == 0 {
		t.begun[k] = max(at, 1)
	}
}

// Merge adds the sketch of another time, which must be of the same needs. Where both
// know the same moment the higher use counts, or both do.
func (t *Sketch) Merge(o *Sketch) { t.MergeParts(o, AllParts) }

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

// TrackedShape is what the tracked load of containers has in common. It does not change once made.
type TrackedShape struct{ *LoadShape }

// sizes are levels of the other load, in millicores: from and until when a container is large.
type sizes struct{ from, until float64 }

// NewTrackedShape returns the shape of a second load. It counts for a container from when the level of its Load is
// above an amount of millicores, until that is below another one. It has less room than Load: where uses differ by more
// than the tenfold, neighbouring buckets become one.
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

// observe takes a use in millicores, which the other load has taken already. Every five minutes it is decided anew
// whether the container is large: so that depends on its use alone, and not on who asks and when.
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

// merge adds another one with the same half-lives. Whether the container is large is as in the later.
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
