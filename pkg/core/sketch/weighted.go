package sketch

import (
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// WeightedShape holds the parameters of histograms with buckets of equal size, in cores and bytes.
type WeightedShape struct {
	sizes     [resources.Kinds]float64
	last      [resources.Kinds]int // last bucket, holds all larger usage
	minWeight float64
	window    [resources.Kinds]time.Duration
}

// NewWeightedShape returns the shape of histograms with buckets of a size up to a maximum. A sample
// weighs its amount, at least minWeight, and expires after the window of its resource, in whole days.
func NewWeightedShape(size, maxSize [resources.Kinds]float64, minWeight float64, window [resources.Kinds]time.Duration) *WeightedShape {
	s := &WeightedShape{sizes: size, minWeight: minWeight, window: window}
	for k := range s.last {
		s.last[k] = int(math.Ceil(maxSize[k] / size[k]))
	}
	return s
}

// bucket needs no table of edges, because 100,000 VPAs may each have their own bucket size.
func (s *WeightedShape) bucket(k resources.Kind, use float64) int32 {
	return int32(max(min(use/s.sizes[k], float64(s.last[k])), 0))
}

func (s *WeightedShape) end(k resources.Kind, bucket int32) float64 {
	return float64(min(int(bucket)+1, s.last[k])) * s.sizes[k]
}

// Weighted holds a histogram per day for one resource.
type Weighted struct {
	shape *WeightedShape
	kind  resources.Kind
	days  []weightedDay // oldest first
}

type weightedDay struct {
	number int64
	cells  []cell // with weight, ordered by bucket
}

type cell struct {
	bucket int32
	weight float64
}

func newWeighted(shape *WeightedShape, k resources.Kind) *Weighted {
	return &Weighted{shape: shape, kind: k}
}

// Observe adds a sample in millicores or bytes.
func (w *Weighted) Observe(at int64, use float64) {
	if w.kind == resources.CPU {
		use /= 1000
	}
	if d := w.day(at / int64(24*time.Hour)); d != nil {
		d.add(w.shape.bucket(w.kind, use), max(use, w.shape.minWeight))
	}
}

// day returns the histogram of a day, nil if expired, and drops expired days.
func (w *Weighted) day(number int64) *weightedDay {
	at, found := slices.BinarySearchFunc(w.days, number, func(d weightedDay, n int64) int { return int(d.number - n) })
	if !found {
		w.days = slices.Insert(w.days, at, weightedDay{number: number})
	}
	oldest := w.days[len(w.days)-1].number - int64(w.shape.window[w.kind]/(24*time.Hour))
	for w.days[0].number < oldest {
		w.days = slices.Delete(w.days, 0, 1)
		at--
	}
	if at < 0 {
		return nil
	}
	return &w.days[at]
}

func (d *weightedDay) add(bucket int32, weight float64) {
	at, found := slices.BinarySearchFunc(d.cells, bucket, func(c cell, b int32) int { return int(c.bucket - b) })
	if !found {
		d.cells = slices.Insert(d.cells, at, cell{bucket: bucket})
	}
	d.cells[at].weight += weight
}

// Quantile returns a quantile by weight in cores or bytes, as the end of its bucket.
func (w *Weighted) Quantile(q float64) float64 {
	var all weightedDay
	total := 0.0
	for i := range w.days {
		for _, c := range w.days[i].cells {
			all.add(c.bucket, c.weight)
			total += c.weight
		}
	}
	if len(all.cells) == 0 {
		return 0
	}
	threshold, sum := q*total, 0.0
	bucket := all.cells[len(all.cells)-1].bucket
	for _, c := range all.cells {
		if sum += c.weight; sum >= threshold {
			bucket = c.bucket
			break
		}
	}
	return w.shape.end(w.kind, bucket)
}

func (w *Weighted) adapt(k resources.Kind, shape *WeightedShape) *Weighted {
	switch {
	case shape == nil:
		return nil
	case w == nil || w.shape.sizes[k] != shape.sizes[k]:
		return newWeighted(shape, k)
	}
	w.shape = shape
	return w
}

func (w *Weighted) merge(o *Weighted) {
	for _, theirs := range o.days {
		if d := w.day(theirs.number); d != nil {
			for _, c := range theirs.cells {
				d.add(c.bucket, c.weight)
			}
		}
	}
}

func (w *Weighted) write(to *imageWriter) {
	to.Float(w.shape.sizes[w.kind])
	to.Int(int64(len(w.days)))
	for _, d := range w.days {
		to.Int(d.number)
		to.Int(int64(len(d.cells)))
		for _, c := range d.cells {
			to.Int(int64(c.bucket))
			to.Float(c.weight)
		}
	}
}

const maxDays, maxCells = 100, 1 << 20

// read requires ascending buckets, because inserting unordered ones takes quadratic time.
func (w *Weighted) read(r *imageReader) {
	if r.mismatch = r.Float() != w.shape.sizes[w.kind]; r.mismatch {
		return
	}
	w.days = nil
	for range r.Within(0, maxDays) {
		number := r.Within(0, maxSlotNumber)
		d, last := w.day(number), int32(-1)
		for range r.Within(0, maxCells) {
			bucket, weight := int32(r.Within(0, maxCells)), r.Float()
			if bucket <= last {
				r.Fail()
			}
			if last = bucket; r.Err() != nil {
				return
			}
			if d != nil {
				d.add(bucket, weight)
			}
		}
	}
}

// codeStep is the largest ratio of two neighboring amounts of a scale.
const codeStep = 1.001

// scale lists the amounts of the codes of one resource in ascending order: code i+1 is amounts[i],
// and code 0 is none. Amounts that are common in manifests, such as 200m or 300Mi, are exact.
// Others are rounded up by at most 0.1%.
type scale struct{ amounts []float64 }

// CPU in millicores, memory in bytes.
var scales = [resources.Kinds]scale{
	resources.CPU: newScale(1e12, 1000, []multiples{
		{100, 500e3}, {1e3, 20e6}, {10e3, 100e6}, {100e3, 1e9}, // 0.1m to 0.5 cores, 1m to 20, 10m to 100, 100m to 1,000
	}),
	resources.Memory: newScale(1<<54, 1, []multiples{
		{1, 1e3}, {1e3, 1e6}, {1 << 10, 1 << 20},
		{1e6, 10e9}, {100e6, 100e9}, {1e9, 1e12},
		{1 << 20, 16 << 30}, {128 << 20, 256 << 30}, {1 << 30, 1 << 40},
	}),
}

type multiples struct{ unit, below float64 }

// newScale returns a scale from 1/divisor to last/divisor with the given exact multiples.
func newScale(last, divisor float64, exact []multiples) scale {
	var s scale
	for amount := 1.0; amount < last && len(s.amounts) < math.MaxUint16; {
		s.amounts = append(s.amounts, amount/divisor)
		next := amount * codeStep
		for _, m := range exact {
			if amount < m.below {
				next = min(next, (math.Floor(amount/m.unit)+1)*m.unit)
			}
		}
		amount = next
	}
	return s
}

// encode returns the code of an amount, at least 1.
func (s *scale) encode(amount float64) uint16 {
	const noise = 1e-9 // of floating-point arithmetic
	at, _ := slices.BinarySearch(s.amounts, amount*(1-noise))
	return uint16(min(at+1, len(s.amounts)))
}

func (s *scale) decode(code uint16) float64 {
	if code == 0 {
		return 0
	}
	return s.amounts[min(int(code), len(s.amounts))-1]
}

// recode rounds up a code of older images: a power of codeStep in parts of a millicore or byte.
func (s *scale) recode(code uint16, parts float64) uint16 {
	if code == 0 {
		return 0
	}
	return s.encode(math.Pow(codeStep, float64(code-1)) / parts)
}

const maxSlotNumber = 1 << 40

// advanceRing moves the current slot of a ring forward, and empties reused slots.
func advanceRing(running *int64, to int64, slots []uint16) {
	n := int64(len(slots))
	if to-*running >= n {
		clear(slots)
		*running = to
	}
	for *running < to {
		*running++
		slots[*running%n] = 0
	}
}

// mergeRings keeps the higher value of slots with the same number.
func mergeRings(running *int64, slots []uint16, other int64, theirs []uint16) {
	advanceRing(running, other, slots)
	n := int64(len(slots))
	for number := max(*running-n+1, other-n+1, 0); number <= other; number++ {
		slots[number%n] = max(slots[number%n], theirs[number%n])
	}
}
