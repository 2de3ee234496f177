// Package sketch keeps compact summaries of a container's usage that recipes need in addition to
// the histograms of a profile.
//
// A Sketch has the parts that its recipe needs: DailyPeaks (peak memory in 6-hour windows), Kills
// (last OOM kills), Load, Tracked and Models (decaying histograms), Points, Hours and Weighted
// (usage of the last days). PressureHours exist only where CPU pressure is measured. LimitRatio and
// the declared request are no usage, but must outlive the pods and a restart.
//
// Merge joins two sketches, Adapt changes the needs, and Image serializes a sketch. Read restores
// an identical sketch.
//
// To add a part, put it in its own file as a type with merge, write and read. Add its field to
// Needs and Sketch and its line to parts, and handle it in Adapt and observe. Some parts need more:
//
//   - a part for one resource: drop it in ForKind
//   - a part with its own times: check it in hasUsageAfter
//   - a CPU part that may be combined with Start: clear it in forgetStarts
//   - a part without usage samples: a method that the recommender (recommender/recommend/keeper.go) and the replay
//     (pkg/core/replay/recommender.go) call
package sketch

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Needs selects the parts of a sketch that a recipe requires.
type Needs struct {
	Peaks      bool                        // of memory
	Load       [resources.Kinds]*LoadShape // nil = not needed
	Tracked    *TrackedShape               // of CPU, in addition to its Load, nil = not needed
	Points     bool                        // of both resources
	Mean       bool                        // means of the pods, else the highest pod
	Hours      [resources.Kinds]bool
	Pressure   bool // PressureHours, requires Hours of CPU
	Weighted   *WeightedShape
	Models     [resources.Kinds]*ModelShape // nil = not needed
	Kills      bool
	LimitRatio bool          // of memory
	Declared   time.Duration // whole minutes for which a new container keeps its memory request, requires Peaks
	Start      time.Duration // time for which a starting container's CPU usage is ignored by Load, Tracked and Hours
}

// Throttling reports whether throttled CPU time is needed.
func (n Needs) Throttling() bool { return n.Load[cpu] != nil && n.Load[cpu].throttling }

// ForKind returns the needs without the parts for the other resource. Parts that record when usage
// was seen serve both and remain.
func (n Needs) ForKind(k resources.Kind) Needs {
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

// Any reports whether any part is needed.
func (n *Needs) Any() bool { return *n != Needs{} }

// Sketch holds the needed parts, others are nil.
type Sketch struct {
	Peaks         *DailyPeaks
	Load          [resources.Kinds]*Load
	Tracked       *Tracked // of CPU
	Points        [resources.Kinds]*Points
	Hours         [resources.Kinds]*Hours
	Weighted      [resources.Kinds]*Weighted
	Models        [resources.Kinds]*Models
	Kills         *Kills
	PressureHours *Hours     // CPU usage plus waiting time, nil = never measured
	LimitRatio    LimitRatio // of memory, as last seen
	needsPressure bool       // PressureHours are needed
	flags         flags
	throttled     throttled              // of CPU
	declared      uint16                 // code of the memory request of a new container, 0 = unknown
	declaredIn    uint16                 // minutes for which it counts
	Now           int64                  // ns since 1970: time of the evaluation or of the last sample
	firstUsage    [resources.Kinds]int64 // ns since 1970: first usage in all needed parts, 0 = none
}

type flags uint8

const (
	needsLimitRatio flags = 1 << iota // LimitRatio is needed
	ignoresStarts                     // starts count only without other CPU usage
	onlyStarts                        // there is no CPU usage except starts
)

func (f *flags) has(flag flags) bool { return *f&flag != 0 }

func (f *flags) set(flag flags, is bool) {
	*f &^= flag
	if is {
		*f |= flag
	}
}

const cpu, ram = resources.CPU, resources.Memory

// Images store the parts in this order.
var parts = [...]struct {
	number int64          // never reused: 1 is the frame, the next free number is 31
	begins resources.Kind // resource whose usage restarts if an image lacks this part
	part
}{
	{25, ram, newPointerPart(func(t *Sketch) *DailyPeaks { return t.Peaks })},
	{3, anyKind, newPointerPart(func(t *Sketch) *Kills { return t.Kills })},
	{24, anyKind, pressurePart{}},
	{15, anyKind, numberPart{func(t *Sketch) *uint16 { return (*uint16)(&t.LimitRatio) }, nil, func(t *Sketch) bool { return t.flags.has(needsLimitRatio) }}},
	{26, anyKind, numberPart{func(t *Sketch) *uint16 { return &t.declared }, &scales[ram], func(t *Sketch) bool { return t.declaredIn > 0 }}},
	{18, anyKind, startsPart{}},
	{27, anyKind, throttlingPart{}},
	{28, cpu, newPointerPart(func(t *Sketch) *Load { return t.Load[cpu] })},
	{30, cpu, newPointerPart(func(t *Sketch) *Tracked { return t.Tracked })},
	{12, cpu, newPointerPart(func(t *Sketch) *Models { return t.Models[cpu] })},
	{20, cpu, newPointerPart(func(t *Sketch) *Points { return t.Points[cpu] })},
	{22, cpu, newPointerPart(func(t *Sketch) *Hours { return t.Hours[cpu] })},
	{10, cpu, newPointerPart(func(t *Sketch) *Weighted { return t.Weighted[cpu] })},
	{29, ram, newPointerPart(func(t *Sketch) *Load { return t.Load[ram] })},
	{13, ram, newPointerPart(func(t *Sketch) *Models { return t.Models[ram] })},
	{21, ram, newPointerPart(func(t *Sketch) *Points { return t.Points[ram] })},
	{23, ram, newPointerPart(func(t *Sketch) *Hours { return t.Hours[ram] })},
	{11, ram, newPointerPart(func(t *Sketch) *Weighted { return t.Weighted[ram] })},
}

// formerPart is a part of older images, with powers of codeStep as codes.
type formerPart struct {
	present int64   // current number of the part
	unit    float64 // codes per millicore or byte
}

var formerParts = map[int64]formerPart{
	2: {25, 1}, 16: {26, 1}, 19: {27, 1}, 4: {28, 1000}, 5: {29, 1000}, 17: {30, 1000},
	6: {20, 1000}, 7: {21, 1000}, 8: {22, 1000}, 9: {23, 1000}, 14: {24, 1000},
}

// anyKind marks parts that recipes can work without.
const anyKind resources.Kind = resources.Kinds

// New returns an empty sketch.
func New(n Needs) *Sketch {
	t := &Sketch{}
	t.Adapt(n)
	return t
}

// Adapt changes the needs: it keeps parts that are still needed, resets new ones, and drops others.
func (t *Sketch) Adapt(n Needs) {
	anew := [resources.Kinds]bool{
		cpu: replace(&t.Tracked, t.Tracked.adapt(n.Tracked)),
		ram: replace(&t.Peaks, ensure(n.Peaks, t.Peaks)),
	}
	for k := range resources.Kind(resources.Kinds) {
		anew[k] = replace(&t.Load[k], t.Load[k].adapt(n.Load[k])) || anew[k]
		anew[k] = replace(&t.Models[k], t.Models[k].adapt(n.Models[k])) || anew[k]
		anew[k] = replace(&t.Points[k], t.Points[k].adapt(k, n.Points, n.Mean)) || anew[k]
		anew[k] = replace(&t.Hours[k], t.Hours[k].adapt(k, n.Hours[k])) || anew[k]
		anew[k] = replace(&t.Weighted[k], t.Weighted[k].adapt(k, n.Weighted)) || anew[k]
		if anew[k] {
			t.firstUsage[k] = 0
		}
	}
	replace(&t.Kills, ensure(n.Kills, t.Kills))
	if t.needsPressure = n.Pressure && n.Hours[cpu]; !t.needsPressure {
		t.PressureHours = nil
	}
	if !t.countsThrottling() {
		t.throttled = throttled{}
	}
	t.flags.set(needsLimitRatio, n.LimitRatio)
	if !n.LimitRatio {
		t.LimitRatio = UnknownRatio
	}
	t.flags.set(ignoresStarts, n.Start > 0)
	t.flags.set(onlyStarts, n.Start > 0 && t.flags.has(onlyStarts))
	if t.declaredIn = uint16(min(n.Declared/time.Minute, math.MaxUint16)); t.declaredIn == 0 {
		t.declared = 0
	}
}

// Coverage returns the time from first to last usage in all needed parts, and false without usage.
func (t *Sketch) Coverage(k resources.Kind) (time.Duration, bool) {
	return time.Duration(max(t.Now-t.firstUsage[k], 0)), t.firstUsage[k] != 0
}

// Observe is ObservePod for a workload of one pod.
func (t *Sketch) Observe(at time.Time, k resources.Kind, use, limit resources.Amount) {
	t.ObservePod("", at, k, use, limit)
}

// ObservePod adds the usage of a pod in millicores or bytes. limit is its maximum, 0 = no limit.
func (t *Sketch) ObservePod(pod string, at time.Time, k resources.Kind, use, limit resources.Amount) {
	t.ObserveUse(pod, at, k, Usage{Amount: use, Limit: limit})
}

// ObserveUse is ObservePod for a Usage with request and throttling.
func (t *Sketch) ObserveUse(pod string, at time.Time, k resources.Kind, u Usage) {
	if k == cpu {
		t.forgetStarts()
	}
	t.observe(pod, at, k, u)
}

func (t *Sketch) observe(pod string, at time.Time, k resources.Kind, u Usage) {
	instant, value := at.UnixNano(), float64(u.Amount)
	t.recordTime(k, instant)
	demanded, throttled := value, 0.0
	if k == cpu {
		demanded, throttled = t.demand(instant, u)
	}
	if k == ram && t.Peaks != nil {
		t.Peaks.Observe(instant, value)
	}
	if k == cpu && t.PressureHours != nil {
		t.PressureHours.Observe(instant, value) // ObservePressure raises it
	}
	if l := t.Load[k]; l != nil {
		l.Observe(instant, demanded)
	}
	if k == cpu && t.Tracked != nil {
		t.Tracked.observe(instant, demanded, t.Load[cpu])
	}
	if throttled > 0 {
		t.throttled.recordNeed(instant, throttled, t.activeLoad())
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

func (t *Sketch) recordTime(k resources.Kind, at int64) {
	t.Now = max(t.Now, at)
	if t.firstUsage[k] == 0 {
		t.firstUsage[k] = max(at, 1)
	}
}

// Merge adds a sketch with the same needs. For the same time, the higher usage counts, or both.
func (t *Sketch) Merge(o *Sketch) { t.MergeParts(o, AllParts) }

type part interface {
	needed(t *Sketch) bool
	merge(t, o *Sketch)
	// write writes nothing if there is nothing to store.
	write(t *Sketch, w *imageWriter)
	// read reports whether the part is needed and matches the needs.
	read(t *Sketch, r *imageReader) bool
}

type record[P any] interface {
	*P
	merge(o *P)
	write(w *imageWriter)
	read(r *imageReader)
}

// pointerPart is a part that a sketch holds as a pointer, nil if it is not needed.
type pointerPart[P any, T record[P]] struct{ field func(*Sketch) T }

func newPointerPart[P any, T record[P]](field func(*Sketch) T) part { return pointerPart[P, T]{field} }

func (p pointerPart[P, T]) needed(t *Sketch) bool { return p.field(t) != nil }

func (p pointerPart[P, T]) merge(t, o *Sketch) {
	if m, other := p.field(t), p.field(o); m != nil && other != nil {
		m.merge(other)
	}
}

func (p pointerPart[P, T]) write(t *Sketch, w *imageWriter) {
	if m := p.field(t); m != nil {
		m.write(w)
	}
}

func (p pointerPart[P, T]) read(t *Sketch, r *imageReader) bool {
	m := p.field(t)
	if m != nil {
		m.read(r)
	}
	return m != nil && !r.mismatch
}

func replace[P any](m **P, to *P) (anew bool) {
	anew = to != nil && to != *m
	*m = to
	return anew
}

func ensure[P any](needed bool, m *P) *P {
	switch {
	case !needed:
		return nil
	case m == nil:
		return new(P)
	}
	return m
}

// numberPart is one property of the created pods, 0 = unknown.
type numberPart struct {
	number func(*Sketch) *uint16
	scale  *scale // nil = the number is not a scale code
	wanted func(*Sketch) bool
}

func (d numberPart) needed(t *Sketch) bool { return d.wanted(t) }

func (d numberPart) merge(t, o *Sketch) {
	if d.needed(t) && *d.number(t) == 0 {
		*d.number(t) = *d.number(o)
	}
}

func (d numberPart) write(t *Sketch, w *imageWriter) {
	if n := *d.number(t); n != 0 {
		w.Int(int64(n))
	}
}

func (d numberPart) read(t *Sketch, r *imageReader) bool {
	if d.needed(t) {
		*d.number(t) = r.Code(d.scale)
	}
	return d.needed(t)
}

// TrackedShape holds the parameters of a tracked load. It is immutable.
type TrackedShape struct{ *LoadShape }

// largeThresholds are levels of the primary load in millicores.
type largeThresholds struct{ from, until float64 }

// NewTrackedShape returns the shape of a second load for large containers. A container is large
// from when the level of its Load exceeds from millicores until it drops below until. To save
// memory, neighboring buckets are merged where usage differs by more than a factor of ten.
func NewTrackedShape(shape *LoadShape, from, until float64) *TrackedShape {
	small := *shape
	small.maxWeights, small.thresholds = maxTrackedWeights, largeThresholds{from, until}
	return &TrackedShape{&small}
}

// Tracked is a second load that decays faster, for large containers.
type Tracked struct {
	Load
	large bool
}

func newTracked(shape *TrackedShape) *Tracked {
	return &Tracked{Load: Load{shape: shape.LoadShape}}
}

// observe adds a sample in millicores that other already contains. Every five minutes it decides
// whether the container is large, independent of the times of recommendations.
func (t *Tracked) observe(at int64, use float64, other *Load) {
	if at/slotWidth > t.latest {
		level := max(other.Level(0, at), other.Level(1, at))
		t.large = level > t.shape.thresholds.from || t.large && level >= t.shape.thresholds.until
	}
	t.Observe(at, use)
}

// Large reports whether the container is large, so that this load counts.
func (t *Tracked) Large() bool { return t.large }

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
	if t.Load.read(r); !r.mismatch {
		t.large = large == 1
	}
}
